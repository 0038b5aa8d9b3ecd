// Package ledger keeps what a member wrote: for the next owner of a slot, who must see all of it (rule R8), and for the
// member's own reads and reconciles, which wait until the member's caches show it.
package ledger

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// settlePatience is how long Settle waits for the informers. The next owner reaches a version that they have seen
	// sooner than one that was read: the latter is the version of the whole store, and on a quiet kind the next owner has
	// to list.
	settlePatience = 100 * time.Millisecond
	settlePeriod   = 2 * time.Millisecond
	// settleTimeout bounds the reads of Settle. The slots are shut meanwhile.
	settleTimeout = time.Second
)

// Cache is an informer of this member.
type Cache struct {
	// Stored returns the metadata of the object of a name in the store, or nil.
	Stored func(types.NamespacedName) metav1.Object
	// Runs is true if it runs, Whole if it holds all objects even if the kind is sharded, and ByOwner if it holds objects
	// by their owners.
	Runs, Whole, ByOwner bool
}

// Config configures a Ledger. The functions must not call the Ledger. All are called concurrently.
type Config struct {
	Roles *sharding.Roles
	Log   logr.Logger
	// Holds reports whether the member holds a slot.
	Holds func(slot.Slot) bool
	// Caches returns the informers of a kind, also those that do not run yet.
	Caches func(schema.GroupKind) []Cache
	// Views returns the running informers of a key of table.Versions.
	Views Views
	// Present reads the present version of a key from the API server. It returns "" if no informer can be behind.
	Present func(ctx context.Context, key string) (string, error)
	// Sweep looks for writes of the kind that the informers show, and calls Pending.Swept.
	Sweep func(schema.GroupKind)
}

// Ledger records the writes of a member. Its methods may be called concurrently.
type Ledger struct {
	Tombstones Tombstones
	// Reads is what reads wait for; nil unless KeepWrites was called.
	Reads *Pending

	c   Config
	own own

	mu     sync.Mutex
	record *Record
}

// New returns an empty Ledger.
func New(c Config) *Ledger { return &Ledger{c: c, record: NewRecord(c.Roles.SlotCount(), c.Views)} }

// KeepWrites has the ledger keep what this member writes to objects of declared kinds, and of those in informers of
// NewWholeInformer, until all its informers show it, for AwaitWrite and AwaitWrites. Call it before any informer runs.
func (l *Ledger) KeepWrites() { l.Reads = &Pending{} }

// Unsettled reports whether Settle has anything to do for a slot, also because the API server did not answer before.
func (l *Ledger) Unsettled(n slot.Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Owes(n)
}

// Settle makes Versions include everything that this member wrote in the slots, deletions included. Call it when
// nothing is in flight there any more. It returns within 1.1 s. If the API server does not answer by then, Versions
// makes the slots' next owner list, until another call of Settle succeeds or the slots are released.
func (l *Ledger) Settle(ctx context.Context, set slot.Set) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience+settleTimeout)
	defer cancel()
	tick := time.NewTicker(settlePeriod)
	defer tick.Stop()
	for patience := time.Now().Add(settlePatience); l.awaits(set) && time.Now().Before(patience); {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	unproved := l.record.Unproved(set)
	l.mu.Unlock()
	var wg sync.WaitGroup
	for key, proofs := range unproved {
		wg.Go(func() {
			version, err := l.c.Present(ctx, key)
			if err != nil {
				l.c.Log.Info("Cannot read the version of a kind; the next owner of slots will list it", "kind", key, "error",
					err.Error())
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, p := range proofs {
				if err != nil {
					l.record.Unread(p)
				} else {
					l.record.Prove(p, version)
				}
			}
		})
	}
	wg.Wait()
}

// awaits reports whether informers have to show deletions in the slots.
func (l *Ledger) awaits(set slot.Set) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Awaits(set)
}

// Written returns, per key, the highest version that this member wrote in the slots; see Record.Versions.
func (l *Ledger) Written(set slot.Set) table.Versions {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Versions(set)
}

// ReleaseDuties forgets the writes in slots of duties whose versions are not known: others have the duties now.
func (l *Ledger) ReleaseDuties(set slot.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.Forget(set)
}

// Released forgets what other members settle from now on: Holds is false for the slots already.
func (l *Ledger) Released(set slot.Set) {
	l.ReleaseDuties(set)
	l.Tombstones.Forget(set)
}
