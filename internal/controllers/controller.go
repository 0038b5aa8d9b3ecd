package controllers

import (
	"context"
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

// Controller is one work queue whose keys are sharded. Its methods follow a key's way: Add when it enters the
// queue, Take when a worker gets it, Admit before it is reconciled, Done when the queue is told that it is done.
// All of them may be called concurrently.
type Controller struct {
	// Name is the controller's, Kind that of its objects.
	Name string
	Kind schema.GroupKind
	// Informer is the one that its queue was made with; nil: the controller has a queue of an adapter's.
	Informer cache.SharedIndexInformer
	// Enqueue puts keys into its queue.
	Enqueue Enqueue
	// Work has the keys.
	Work *work.Controller

	env  *Env
	pace *pace
	// panics is how many of its reconciles panicked.
	panics atomic.Int32
	// begun is closed once its workers run.
	begin  sync.Once
	begun  chan struct{}
	wiring wiring
	// requests are those of its reconciles; loggedUnwrapped says that some go through other clients than WrapConfig's.
	requests        work.Requests
	loggedUnwrapped atomic.Bool
	// loggedDropped says that NoteDropped has logged.
	loggedDropped atomic.Bool
	// trial is what came of its reconciles in a step of a canary; Work.With guards it.
	trial step

	mu      sync.Mutex
	explain func() string // why its workers do not run
	// choose says which of the existing objects of slots that open are enqueued; nil: all.
	choose Choose
	// bounced are items that were put back because another one claims their object, until their Done.
	bounced map[any]struct{}
	hooks   hooks
	// losing says that a goroutine calls the function of OnLost.
	losing bool
	// reportedFailing says that it was told that all reconciles fail.
	reportedFailing bool
}

// objectsOf are the objects of a kind in a share.
type objectsOf struct {
	share *delivery.Share
	kind  schema.GroupKind
}

func (o objectsOf) Locate(key types.NamespacedName) (slot.Slot, bool) {
	return o.share.Locate(o.kind, key)
}
func (o objectsOf) Stored(key types.NamespacedName) (slot.Slot, bool) {
	return o.share.Stored(o.kind, key)
}
func (o objectsOf) UID(key types.NamespacedName) (types.UID, bool) { return o.share.UID(o.kind, key) }
func (o objectsOf) Holds(s slot.Slot) bool                         { return o.share.Holds(s) }
func (o objectsOf) Incomplete(s slot.Slot) bool                    { return o.share.Lacks(o.kind, s) }
func (o objectsOf) LedElsewhere() bool                             { return o.share.IsLedElsewhere() }

// isFree reports whether the API server has no object of that name.
func (c *Controller) isFree(ctx context.Context, key types.NamespacedName) (bool, error) {
	exists, err := c.env.Share.Live(ctx, c.Kind, key)
	if err != nil {
		c.env.Log.V(1).Info("Cannot tell whether an object that was deleted has a namesake; trying again", "controller",
			c.Name, "object", key.String(), "error", err.Error())
	}
	return !exists, err
}

// Add notes that a key enters the queue. It returns false for a key that is not this member's: do not add it to the
// queue; its owner gets the same event.
func (c *Controller) Add(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.Work.Add(key)
}

// AddLater is Add for a key that waits for a delay, such as a backoff.
func (c *Controller) AddLater(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.Work.AddLater(key)
}

// NoteDropped counts a key that is about to be added because of an event that no other member gets, if it is not this
// member's. The first one is logged.
func (c *Controller) NoteDropped(key types.NamespacedName) {
	if c.Work.Keeps(key) {
		return
	}
	c.env.Dropped(c.Name)
	if c.loggedDropped.CompareAndSwap(false, true) {
		c.env.Log.Info("An event of a source.Channel is about an object that this member does not own, so it is dropped. "+
			"Unless the program sends it to all replicas, nobody reconciles the object because of it. Send it to all of them, "+
			"or write to the object, for example an annotation. rota_events_dropped_total counts such events", "controller",
			c.Name, "kind", c.Kind.String(), "object", key.String())
	}
}

// keys are those of a controller.
type keys = work.Keys[types.NamespacedName, work.Flying]

// Take notes that a worker got the key from the queue. It reports whether the queue has to forget the key's failures:
// they are from before the slot was lost, and are counted anew.
func (c *Controller) Take(key types.NamespacedName) (anew bool) {
	wait, stranger, anew := c.Work.Take(key)
	c.pace.waited(c.env.Now, wait)
	// Keys of slots that were lost since are forgotten. Until then, everything in the queue came by Add or Enqueue.
	if stranger && !c.wiring.added.Load() && !c.wiring.forgot.Load() {
		c.fault("not added", "a worker got a key that never came to the queue by Add: handlers have to add to the Queue "+
			"that NewQueue returned, and not to the work queue that it wraps", "object", key.String())
	}
	return anew
}

// Admit asks whether the key may be reconciled. If so, the context carries the slot's epoch (EpochFrom) and ends when
// the slot is lost; functions of OnReset and OnLost that are due have been called. If not, the worker has nothing to do
// for the key but call Done.
//
// It waits for at most 100 ms until the cache shows what this controller wrote to the object: the event of a child that
// the last reconcile wrote often comes before that of the object.
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

// Done notes that a worker is done with the key. Call it after the key was added again, if the reconcile wants that:
// otherwise the slot may be given up before a deletion is reconciled. Call it before the queue's own Done, which lets
// another worker have the key.
func (c *Controller) Done(key types.NamespacedName) {
	if o := c.env.Observer; o != nil {
		o.End(c.Kind, key)
	}
	if c.Work.Done(key, c.getHooks().any(), func(f work.Flight[work.Flying]) { c.judge(key, f) }) {
		c.bypassed(key)
	}
}

// bypassed notes that a worker finished a key of this member without asking the gate. If other keys came to the gate,
// the worker may have given this one up. If none ever did, the workers may work on objects of other members.
func (c *Controller) bypassed(key types.NamespacedName) {
	if c.wiring.admitted.Load() {
		c.env.Log.V(1).Info("Done without Admit: a worker gave the key up", "controller", c.Name, "object", key.String())
		return
	}
	c.fault("not admitted", "its workers are done with keys without Admit, so that others may work on the same objects: "+
		"sync with the function that Admit of its queue returns", "object", key.String())
}

// Opened enqueues, for slots that were opened: objects that changed, keys that waited for the gate, and owed keys, each
// once. It returns the other objects, which the caller has to enqueue once.
func (c *Controller) Opened(set slot.Set, objects delivery.Opened, parked []gate.Key) (rest []types.NamespacedName) {
	objects = c.chosen(set, objects)
	urgent := c.Work.Opened(set, slices.Concat(objects.Deleted, objects.Changed), parked)
	if urgent+len(objects.Recent)+len(objects.Others) > 0 {
		c.wiring.given.Store(true)
	}
	c.Enqueue(objects.Recent, work.PriorityRecent)
	return objects.Others
}

// chosen returns the objects that the controller's adapter wants of slots that were opened. Keys without an object are
// always among them: nobody can tell any more what the object was.
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
	wanted := func(keys []types.NamespacedName) []types.NamespacedName { // other controllers have the same lists
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

// complete enqueues the keys that waited for kinds, and the objects that came with these.
func (c *Controller) complete(objects delivery.Opened) {
	objects = c.chosen(c.env.Share.Held(), objects)
	c.Work.Complete(slices.Concat(objects.Deleted, objects.Changed))
	c.Enqueue(objects.Recent, work.PriorityRecent)
	c.Enqueue(objects.Others, work.PriorityOpened)
}
