// Package controllers has the controllers of a process: each is a work queue whose keys are sharded. It is handed what
// it needs of the member. Client-go controllers have the queue (rota.Queue), adapters such as ctrlrt the controller.
package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Env is what controllers are handed. Its functions may be called concurrently.
type Env struct {
	Share  *delivery.Share
	Gate   *gate.Gate
	Writes Writes
	Faults *Faults
	Log    logr.Logger
	// ByUID says that the names of objects do not tell their slots (slot.KeyUID).
	ByUID bool
	// Now is the monotonic time, Wall that of the wall.
	Now  func() time.Duration
	Wall func() time.Time
	// Canary returns that of the last table seen; never nil.
	Canary func() *table.Canary
	// Asked is told what the gate said, and EmitNow of what must be told before the process ends: it blocks until that is
	// so or ctx ends.
	Asked   func(gate.Verdict)
	EmitNow func(ctx context.Context, n member.Notify)
	// Dropped is called for each event of a controller that reached this member only, and was about another's object.
	Dropped func(controller string)
	// Observer hears of reconciles; nil: nobody does.
	Observer Observer
}

// Observer hears of the reconciles of a process, for tests of operators. Its methods are called by workers, and must
// not block.
type Observer interface {
	// Begin is told of a reconcile that begins. The context that it returns is the reconcile's.
	Begin(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) context.Context
	// Result is told what came of it, nil for a success. The last one before End counts.
	Result(kind schema.GroupKind, key types.NamespacedName, err error)
	// End is told that a worker is done with a key, before another one may have it. It may not have begun.
	End(kind schema.GroupKind, key types.NamespacedName)
}

// Writes are those of the process (package writes).
type Writes interface {
	// Counting returns a context whose requests to the API server are counted.
	Counting(ctx context.Context, n *work.Requests) context.Context
	// ByHand reports whether a program notes its writes itself.
	ByHand() bool
}

// Set has the controllers of a process. Its methods may be called concurrently.
type Set struct {
	env  Env
	pace *pace

	mu  sync.Mutex
	all []*Controller
}

// NewSet returns a set without controllers.
func NewSet(env Env) *Set { return &Set{env: env, pace: newPace()} }

// Observe has an observer hear of reconciles. Call it before the workers run.
func (s *Set) Observe(o Observer) { s.env.Observer = o }

// New adds a controller for a sharded kind. The name must be unique in the process. informer is the one that its queue
// was made with, or nil.
func (s *Set) New(
	name string, kind schema.GroupKind, informer cache.SharedIndexInformer, enqueue Enqueue,
) (*Controller, error) {
	c := &Controller{
		Name: name, Kind: kind, Informer: informer, Enqueue: enqueue, env: &s.env, pace: s.pace, begun: make(chan struct{}),
		bounced: map[any]struct{}{},
	}
	c.Work = work.New(work.Env{
		Name: name, Kind: kind.String(), ByUID: s.env.ByUID, Gate: s.env.Gate, Objects: objectsOf{s.env.Share, kind},
		Enqueue: enqueue, Now: s.env.Now, Wall: s.env.Wall, Asked: s.env.Asked, IsFree: c.isFree,
		After: func(wait time.Duration, do func()) { time.AfterFunc(wait, do) },
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.all {
		if other.Name == name {
			return nil, fmt.Errorf("controller %s: there is one of that name already", name)
		}
	}
	s.all = append(slices.Clip(s.all), c)
	return c, nil
}

// All returns all controllers.
func (s *Set) All() []*Controller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Works returns what all controllers do.
func (s *Set) Works() []*work.Controller {
	var all []*work.Controller
	for _, c := range s.All() {
		all = append(all, c.Work)
	}
	return all
}

// Oldest returns since when the oldest key of each slot has been waiting for a worker.
func (s *Set) Oldest() map[slot.Slot]time.Duration {
	since := map[slot.Slot]time.Duration{}
	for _, c := range s.All() {
		c.Work.With(func(k *keys) { k.Oldest(since) })
	}
	return since
}

// Complete enqueues the objects of slots that were opened without a kind, now that it has been listed: a slot may be
// open although a kind cannot be listed (delivery.Share.Lacks), and controllers that need the kind do not work on it
// until then.
func (s *Set) Complete(opened map[schema.GroupKind]delivery.Opened) {
	for _, c := range s.All() {
		c.complete(opened[c.Kind])
	}
}
