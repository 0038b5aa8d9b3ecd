package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Enqueue puts keys into a controller's work queue, in order. It is called from goroutines of the rota and must not
// block.
type Enqueue func(keys []types.NamespacedName, priority work.Priority)

// Controller is a work queue whose keys are sharded. Its methods follow a key through the queue: Add when the key
// enters it, Take when a worker gets the key, Admit before it is reconciled, Done when the worker is done with it. All
// of them may be called concurrently.
type Controller struct {
	// Name is the controller's name, and Kind the kind of its objects.
	Name string
	Kind schema.GroupKind
	// Informer is the informer that its queue was made with, nil if an adapter made the queue.
	Informer cache.SharedIndexInformer
	// Enqueue puts keys into its queue.
	Enqueue Enqueue
	// Work tracks the keys.
	Work *work.Controller

	env  *Env
	pace *pace
	// panics counts its reconciles that panicked.
	panics atomic.Int32
	// begun is closed once its workers run.
	begin  sync.Once
	begun  chan struct{}
	wiring wiring
	// requests counts the requests of its reconciles. loggedUnwrapped is true once CheckClients has logged that some of
	// them use clients that were not wrapped.
	requests        work.Requests
	loggedUnwrapped atomic.Bool
	// loggedDropped is true once Drop has logged.
	loggedDropped atomic.Bool
	// trial holds the results of its reconciles in the current step of a canary. Work.With guards it.
	trial step

	mu      sync.Mutex
	explain func() string // returns why its workers do not run
	// choose picks which existing objects of opened slots are enqueued. If nil, all are.
	choose Choose
	// bounced holds items that were put back because another item claims their object, until their Done.
	bounced map[any]struct{}
	hooks   hooks
	// losing is true while a goroutine calls the OnLost function.
	losing bool
	// reportedFailing is true if it was reported that all reconciles fail.
	reportedFailing bool
}

// isFree reports whether the API server has no object of that name.
func (c *Controller) isFree(ctx context.Context, key types.NamespacedName) (bool, error) {
	exists, err := c.env.Share.Live(ctx, c.Kind, key)
	if err != nil {
		c.env.Log.V(1).Info("Cannot tell whether an object that was deleted has a namesake; trying again", "controller",
			c.Name, "object", key.String(), "error", err.Error())
	}
	return !exists, err
}

// Missing describes what the member waits for until Started is called.
func (c *Controller) Missing() string {
	c.mu.Lock()
	explain := c.explain
	c.mu.Unlock()
	if explain != nil {
		if why := explain(); why != "" {
			return fmt.Sprintf("the workers of controller %s: %s", c.Name, why)
		}
	}
	return fmt.Sprintf("the workers of controller %s, which have not asked its queue for work: they must Get from the "+
		"Queue that NewQueue returned", c.Name)
}

// Started records that the controller's workers run. The member joins once the workers of all controllers do, so that
// it takes no slots without workers. Queue.Get calls Started. Call it if workers use another queue or start only after
// the member has joined. It may be called more than once.
func (c *Controller) Started() { c.begin.Do(func() { close(c.begun) }) }

// Begun returns a channel that is closed when Started is called.
func (c *Controller) Begun() <-chan struct{} { return c.begun }

// Explain sets a function that returns why the workers do not run yet, or "" if it cannot know. It is called
// concurrently and must not block.
func (c *Controller) Explain(why func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explain = why
}

// Add records that a key enters the queue. If it returns false, the key belongs to another member: do not add it to the
// queue. Its owner gets the same event.
func (c *Controller) Add(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.Work.Add(key)
}

// AddLater is Add for a key that enters the queue after a delay, such as a backoff.
func (c *Controller) AddLater(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.Work.AddLater(key)
}

// ForwardOrDrop handles a key that is about to be added because of an event that no other member gets. If the key
// belongs to another member, the event is forwarded to it, or dropped if members cannot reach each other.
func (c *Controller) ForwardOrDrop(key types.NamespacedName) {
	if c.Work.Keeps(key) || c.env.Forward != nil && c.env.Forward(c.Name, key) {
		return
	}
	c.Drop(key, errors.New("members cannot reach each other (Options.Address)"))
}

// Drop counts an event about another member's object that did not reach that member. The first one is logged.
func (c *Controller) Drop(key types.NamespacedName, cause error) {
	c.env.Dropped(c.Name)
	if c.loggedDropped.CompareAndSwap(false, true) {
		c.env.Log.Info("An event of a source.Channel is about an object that this member does not own, and is dropped. "+
			"Unless the program sends it to all replicas, no member reconciles the object because of it. Set "+
			"Options.Address, so that such events are forwarded to the owner, or send them to all replicas, or write to the "+
			"object, for example an annotation. rota_events_dropped_total counts such events",
			"controller", c.Name, "kind", c.Kind.String(), "object", key.String(), "cause", cause.Error())
	}
}

// keys is the set of a controller's keys.
type keys = work.Keys[types.NamespacedName, work.Flying]

// Take records that a worker got the key from the queue. If anew is true, the queue has to forget the key's failures,
// because they are from before the slot was lost.
func (c *Controller) Take(key types.NamespacedName) (anew bool) {
	wait, stranger, anew := c.Work.Take(key)
	c.pace.waited(c.env.Now, wait)
	// Keys of lost slots are forgotten. While none is, every key in the queue came by Add or Enqueue.
	if stranger && !c.wiring.added.Load() && !c.wiring.forgot.Load() {
		c.fault("not added", "a worker got a key that never came to the queue by Add: handlers have to add to the Queue "+
			"that NewQueue returned, and not to the work queue that it wraps", "object", key.String())
	}
	return anew
}

// Admit reports whether the key may be reconciled. If so, the returned context carries the slot's epoch (EpochFrom) and
// ends when the slot is lost, and the OnReset and OnLost functions that were due have been called. If not, the worker
// only has to call Done.
//
// Admit waits up to 100 ms until the cache shows what this controller wrote to the object: the event of a child that
// the last reconcile wrote often arrives before the object's own event.
func (c *Controller) Admit(ctx context.Context, key types.NamespacedName) (context.Context, bool) {
	c.wiring.admitted.Store(true)
	c.env.Share.ShowOwn(ctx, c.Kind, key, c.Name)
	a, ok := c.Work.Admit(ctx, key)
	if !ok {
		return ctx, false
	}
	by := work.Admitted{
		Gate: c.env.Gate, Slot: a.Slot, Context: a.Context, UID: a.UID, Author: c.Name, Requests: &c.requests,
		CutShort: func() { c.Enqueue([]types.NamespacedName{key}, work.PriorityEvent) },
	}
	ctx = c.env.Writes.Counting(by.In(a.Context), &c.requests)
	if c.env.ByUID {
		ctx = WithSubject(ctx, c.env.Share, Subject{Kind: c.Kind, Name: key, Slot: a.Slot, Gone: a.Gone})
	}
	if o := c.env.Observer; o != nil {
		ctx = o.Begin(ctx, c.Kind, key)
	}
	c.meet(ctx, a.Slot, key)
	return ctx, true
}

// Done records that a worker is done with the key. If the reconcile wants the key to be added again, add it before
// Done; otherwise the slot may be given up before a deletion is reconciled. Call Done before the queue's own Done,
// which lets another worker have the key.
func (c *Controller) Done(key types.NamespacedName) {
	if o := c.env.Observer; o != nil {
		o.End(c.Kind, key)
	}
	if c.Work.Done(key, c.getHooks().any(), func(f work.Flight[work.Flying]) { c.judge(key, f) }) {
		c.bypassed(key)
	}
}

// bypassed records that a worker finished a key of this member without Admit. If Admit is called for other keys, the
// worker may just have given this one up. If it is never called, the workers may work on objects of other members.
func (c *Controller) bypassed(key types.NamespacedName) {
	if c.wiring.admitted.Load() {
		c.env.Log.V(1).Info("Done without Admit: a worker gave the key up", "controller", c.Name, "object", key.String())
		return
	}
	c.fault("not admitted", "its workers are done with keys without Admit, so that others may work on the same objects: "+
		"sync with the function that Admit of its queue returns", "object", key.String())
}

// Opened enqueues, once each, for slots that were opened: changed objects, keys that waited for the gate, and owed
// keys. It returns the other objects, which the caller has to enqueue once.
func (c *Controller) Opened(set slot.Set, objects delivery.Opened, parked []gate.Key) (rest []types.NamespacedName) {
	objects = c.chosen(set, objects)
	urgent := c.Work.Opened(set, slices.Concat(objects.Deleted, objects.Changed), parked)
	if urgent+len(objects.Recent)+len(objects.Others) > 0 {
		c.wiring.given.Store(true)
	}
	c.Enqueue(objects.Recent, work.PriorityRecent)
	return objects.Others
}

// chosen returns the objects of opened slots that the controller's adapter wants. It always includes keys without an
// object, because an adapter cannot know any more what the object was.
func (c *Controller) chosen(set slot.Set, objects delivery.Opened) delivery.Opened {
	c.mu.Lock()
	choose := c.choose
	c.mu.Unlock()
	if choose == nil {
		return objects
	}
	var asked []types.NamespacedName
	for _, key := range slices.Concat(objects.Changed, objects.Recent, objects.Others) {
		if c.env.Share.Exists(c.Kind, key) {
			asked = append(asked, key)
		}
	}
	unwanted := choose(set, asked)
	if len(unwanted) == 0 {
		return objects
	}
	wanted := func(keys []types.NamespacedName) []types.NamespacedName { // clones, since controllers share the lists
		return slices.DeleteFunc(slices.Clone(keys), func(key types.NamespacedName) bool { return unwanted[key] })
	}
	return delivery.Opened{Deleted: objects.Deleted, Changed: wanted(objects.Changed), Recent: wanted(objects.Recent),
		Others: wanted(objects.Others)}
}

// Forget drops all keys of slots that were lost.
func (c *Controller) Forget(set slot.Set) {
	c.wiring.forgot.Store(true)
	c.Work.Forget(set)
	c.loseLater()
}

// complete enqueues the keys that waited for kinds to be listed, and the objects that came with them.
func (c *Controller) complete(objects delivery.Opened) {
	objects = c.chosen(c.env.Share.Held(), objects)
	c.Work.Complete(slices.Concat(objects.Deleted, objects.Changed))
	c.Enqueue(objects.Recent, work.PriorityRecent)
	c.Enqueue(objects.Others, work.PriorityOpened)
}

// Choose returns the keys that a controller does not want when slots open. The keys belong to objects that exist in
// these slots and are not in the queue for another reason. Choose is called on goroutines of the rota, possibly
// concurrently. Handovers wait for it.
type Choose func(set slot.Set, keys []types.NamespacedName) (unwanted map[types.NamespacedName]bool)

// SetChoose sets the controller's Choose function. Call it before the controller's workers run.
func (c *Controller) SetChoose(f Choose) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.choose = f
}

// noteBounced records that an item was put back.
func (c *Controller) noteBounced(item any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounced[item] = struct{}{}
}

// hasBounced reports whether an item was put back since it was taken.
func (c *Controller) hasBounced(item any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bounced := c.bounced[item]
	return bounced
}

// unbounce reports whether an item was put back since it was taken, and clears that.
func (c *Controller) unbounce(item any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bounced := c.bounced[item]
	delete(c.bounced, item)
	return bounced
}

// Turn reports whether a change must be reported: all reconciles fail now, or no longer fail.
func (c *Controller) Turn(failing bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	turned := failing != c.reportedFailing && (failing || c.Sum().Failures == 0)
	if turned {
		c.reportedFailing = failing
	}
	return turned
}
