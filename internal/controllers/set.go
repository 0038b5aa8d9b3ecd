// Package controllers contains a process's controllers: work queues whose keys are sharded. Env provides what they need
// from the member. Client-go controllers use Queue (rota.Queue); adapters such as ctrlrt use Controller.
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
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Env is the environment of controllers. Its functions may be called concurrently.
type Env struct {
	Share  Share
	Gate   *gate.Gate
	Writes Writes
	Faults *Faults
	Log    logr.Logger
	// ByUID is true if an object's slot cannot be computed from its name (slot.KeyUID).
	ByUID bool
	// Now returns the monotonic time, and Wall the wall clock. After calls do after a delay.
	Now   func() time.Duration
	Wall  func() time.Time
	After func(wait time.Duration, do func())
	// Runner starts functions that block.
	Runner replica.Runner
	// Canary returns the canary of the last table seen, never nil.
	Canary func() *table.Canary
	// Asked is called with each verdict of the gate. EmitNow emits a notice that must be sent before the process ends; it
	// blocks until the event is created or ctx ends.
	Asked   func(gate.Verdict)
	EmitNow func(ctx context.Context, n member.Notify)
	// Forward takes an event that reached only this member and is about another member's object, to forward it to the
	// owner. It returns false if it cannot. It is nil if members cannot reach each other.
	Forward func(controller string, object types.NamespacedName) bool
	// Dropped is called for each such event that is dropped.
	Dropped func(controller string)
	// Observer, unless nil, sees reconciles.
	Observer Observer
}

// Observer sees the reconciles of a process, for tests of operators. Its methods are called by workers and must not
// block.
type Observer interface {
	// Begin is called when a reconcile begins. The returned context is used for the reconcile.
	Begin(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) context.Context
	// Result is called with the result of a reconcile, nil for success. The last call before End counts.
	Result(kind schema.GroupKind, key types.NamespacedName, err error)
	// End is called when a worker is done with a key, before another worker may have it. Begin may not have been called.
	End(kind schema.GroupKind, key types.NamespacedName)
}

// Writes tracks the writes of the process (package writes).
type Writes interface {
	// Counting returns a context whose requests to the API server are counted.
	Counting(ctx context.Context, n *work.Requests) context.Context
	// ByHand reports whether the program records its writes itself (Rota.Wrote).
	ByHand() bool
}

// Set holds the controllers of a process. Its methods may be called concurrently.
type Set struct {
	env  Env
	pace *pace

	mu  sync.Mutex
	all []*Controller
}

// NewSet returns a set without controllers.
func NewSet(env Env) *Set { return &Set{env: env, pace: newPace()} }

// Observe sets the observer of reconciles. Call it before the workers run.
func (s *Set) Observe(o Observer) { s.env.Observer = o }

// New adds a controller for a sharded kind. The name must be unique in the process. informer is the informer that its
// queue was made with, or nil.
func (s *Set) New(
	name string, kind schema.GroupKind, informer cache.SharedIndexInformer, enqueue Enqueue,
) (*Controller, error) {
	c := &Controller{
		Name: name, Kind: kind, Informer: informer, Enqueue: enqueue, env: &s.env, pace: s.pace, begun: make(chan struct{}),
		bounced: map[any]struct{}{},
	}
	c.Work = work.New(work.Env{
		Name: name, Kind: kind, ByUID: s.env.ByUID, Gate: s.env.Gate, Objects: s.env.Share,
		Enqueue: enqueue, Now: s.env.Now, Wall: s.env.Wall, Asked: s.env.Asked, IsFree: c.isFree,
		After: s.env.After,
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

// Named returns the controller of a name, or nil.
func (s *Set) Named(name string) *Controller {
	for _, c := range s.All() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Works returns the work.Controller of each controller.
func (s *Set) Works() []*work.Controller {
	var all []*work.Controller
	for _, c := range s.All() {
		all = append(all, c.Work)
	}
	return all
}

// Oldest returns, for each slot, the time since which its oldest key has been waiting for a worker.
func (s *Set) Oldest() map[slot.Slot]time.Duration {
	since := map[slot.Slot]time.Duration{}
	for _, c := range s.All() {
		c.Work.With(func(k *keys) { k.Oldest(since) })
	}
	return since
}

// Complete enqueues the objects of slots that were opened without a kind, now that the kind has been listed. A slot may
// open although a kind cannot be listed (delivery.Share.Lacks); controllers that need the kind do not work on the slot
// until then.
func (s *Set) Complete(opened map[schema.GroupKind]delivery.Opened) {
	for _, c := range s.All() {
		c.complete(opened[c.Kind])
	}
}
