package feed

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Options are what the informers of a Share need.
type Options struct {
	Roles *sharding.Roles
	Log   logr.Logger
	// Patience, Excuse, Plain, Leaves, Ahead, Mislabelled, Unseen and Stopped are the Share's options of these names.
	Patience, Excuse time.Duration
	Plain            bool
	Leaves           func(slot.Slot) bool
	Ahead            func() int
	Mislabelled      func(schema.GroupKind, metav1.Object)
	Unseen, Stopped  func(schema.GroupKind)
	// Complete is called when slots do not go without an informer's kind any more. late are those that have been listed
	// since they were opened.
	Complete func(inf *Informer, late slot.Set)
	// Missed is called when a list of slots may have shown deletions.
	Missed func(*Informer, slot.Set)
}

// Common is what the informers of a Share have in common.
type Common struct {
	*sharding.Roles
	*ledger.Ledger
	*slots
	*registry
	Log     logr.Logger
	options Options

	reading chan struct{} // has a value for each read of a kind's version in flight
	turns   turns
}

// New returns what the informers of a Share have in common.
func New(o Options) *Common {
	c := &Common{
		Roles: o.Roles, slots: newSlots(), registry: &registry{roles: o.Roles, ended: ended{}}, Log: o.Log, options: o,
		reading: make(chan struct{}, Readers), turns: newTurns(),
	}
	c.Ledger = ledger.New(ledger.Config{
		Roles: o.Roles, Log: o.Log, Holds: c.Holds, Caches: c.caches, Views: c.views, Present: c.readProof,
		Sweep: c.forgetShown,
	})
	return c
}

// forgetShown forgets the writes of a kind that all its informers show. Reads forget what they have waited for; this is
// for writes that no read waits for.
func (c *Common) forgetShown(kind schema.GroupKind) {
	defer c.Reads.Swept(kind)
	ctx := context.Background() // what is called ends with the informer
	for _, inf := range c.running(kind) {
		writes, err := inf.Reads.prove(ctx, c.Reads.In(kind, ""), func() bool { return false })
		if err != nil {
			continue
		}
		if past := inf.Reads.past(writes); len(past) > 0 && (!inf.Sharded || inf.Reads.Settled(ctx) == nil) {
			inf.Reads.noteShown(past)
		}
	}
}
