package rota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Priority is the priority of keys that the rota enqueues. The numbers are those of controller-runtime's priority
// queue: higher is sooner, and an event gets 0. Queues without priorities take keys in order.
type Priority int

// Priorities.
const (
	// PriorityEvent is for objects that changed or were deleted while a slot was on its way here.
	PriorityEvent Priority = 0
	// PriorityRecent is for objects that changed shortly before. The former owner has reconciled most of them. Those that
	// it has not must not wait for all others.
	PriorityRecent Priority = -1
	// PriorityOpened is for all other objects of a slot that was opened.
	PriorityOpened Priority = -100
)

// Enqueue puts keys into a controller's work queue, in order. It is called from goroutines of the rota and must not
// block.
type Enqueue func(keys []types.NamespacedName, priority Priority)

// Controller is one work queue whose keys are sharded. Its methods follow a key's way: Add when it enters the
// queue, Take when a worker gets it, Admit before it is reconciled, Done when the queue is told that it is done.
// All of them may be called concurrently.
type Controller struct {
	rota    *Rota
	name    string
	kind    schema.GroupKind
	enqueue Enqueue
	// panics is how many of its reconciles panicked.
	panics atomic.Int32
	// begun is closed once its workers run.
	begin sync.Once
	begun chan struct{}
	// informer is the one that the queue was made with; nil if NewController made the controller. Guarded by rota.mu.
	informer cache.SharedIndexInformer

	wiring wiring
	sent   sent

	mu      sync.Mutex
	explain func() string // why its workers do not run
	// choose says which of the existing objects of slots that open are enqueued; nil: all.
	choose adapter.Choose
	// keys are those that wait, are in flight or are owed, and what is remembered of others.
	keys *work.Keys[types.NamespacedName, flight]
	// bounced are items that were put back because another one claims their object, until their Done.
	bounced map[any]struct{}
	resets  resets
	// toldFailing says that it was told that all reconciles fail.
	toldFailing bool
}

// flight is what belongs to a key that was admitted.
type flight struct {
	leave func()
	// since is when it was admitted.
	since time.Time
	ctx   context.Context //nolint:containedctx // tells whether the reconcile was cut short
}

// NewController registers a work queue for a kind and shards the kind. The name must be unique in the process. Call it
// before Run (but see JoinAfter) and before any informer of the kind runs. The member joins once the controller's
// workers run; see Started.
//
// It is for adapters, such as ctrlrt. client-go controllers use NewQueue. Run returns an error if no informer of the
// kind holds this member's share, unless ExpectKindLate was called.
func (r *Rota) NewController(name string, kind schema.GroupKind, enqueue Enqueue) (*Controller, error) {
	r.mu.Lock()
	late := r.late()
	r.mu.Unlock()
	if late {
		return nil, fmt.Errorf("controller %s: Run was called before: set up the controllers of sharded kinds before the "+
			"manager starts, or have the member wait for them with JoinAfter of the rota.Rota", name)
	}
	if err := r.share.Shard(kind); err != nil {
		return nil, fmt.Errorf("controller %s: %w", name, err)
	}
	c := &Controller{
		rota: r, name: name, kind: kind, enqueue: enqueue, begun: make(chan struct{}),
		keys: work.NewKeys[types.NamespacedName, flight](), bounced: map[any]struct{}{},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.controllers {
		if other.name == name {
			return nil, fmt.Errorf("controller %s: there is one of that name already", name)
		}
	}
	r.controllers = append(slices.Clip(r.controllers), c)
	return c, nil
}

// Add notes that a key enters the queue. It returns false for a key that is not this member's: do not add it to the
// queue; its owner gets the same event.
func (c *Controller) Add(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.add(key, c.rota.now())
}

// AddLater is Add for a key that waits for a delay, such as a backoff.
func (c *Controller) AddLater(key types.NamespacedName) bool {
	c.wiring.added.Store(true)
	return c.add(key, 0)
}

func (c *Controller) add(key types.NamespacedName, since time.Duration) bool {
	s, known := c.slotOf(key)
	if !known {
		return false
	}
	// A stock leader that works hears of what led to the key, and all objects are enqueued when the rota's turn comes.
	if !c.rota.gate.Owns(s) && (c.rota.share.IsLedElsewhere() || !c.want(s, key)) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Queue(s, key, since)
	return true
}

// oldest returns since when the oldest key of each slot has been waiting for a worker.
func (c *Controller) oldest(since map[slot.Slot]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Oldest(since)
}

// Take notes that a worker got the key from the queue.
func (c *Controller) Take(key types.NamespacedName) {
	s, known := c.slotOf(key)
	if !known {
		return
	}
	c.mu.Lock()
	stranger := !c.keys.Take(s, key)
	c.mu.Unlock()
	// Keys of slots that were lost since are forgotten. Until then, everything in the queue came by Add or Enqueue.
	if stranger && !c.wiring.added.Load() && !c.wiring.forgot.Load() {
		c.fault("not added", "a worker got a key that never came to the queue by Add: handlers have to add to the Queue "+
			"that NewQueue returned, and not to the work queue that it wraps", "object", key.String())
	}
}

// slotOf returns the slot of a key. With slot.KeyUID it is the slot of the object of that name, or of the one that was
// there before (rule R15), as long as the key is on its way: a key stays in its object's slot, even when nothing else
// tells the slot any more.
func (c *Controller) slotOf(key types.NamespacedName) (s slot.Slot, known bool) {
	if !c.byUID() {
		return c.rota.share.Locate(c.kind, key)
	}
	if s, known = c.rota.share.Stored(c.kind, key); known {
		return s, true
	}
	c.mu.Lock()
	s, known = c.keys.Slot(key)
	c.mu.Unlock()
	if known {
		return s, true
	}
	return c.rota.share.Locate(c.kind, key)
}

// byUID reports whether the names of objects do not tell their slots.
func (c *Controller) byUID() bool { return c.rota.cfg.Key == slot.KeyUID }

// drop notes that the worker does not have a key any more, and reports whether it had.
func (c *Controller) drop(s slot.Slot, key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Drop(s, key)
}

// Admit asks whether the key may be reconciled. If so, the context carries the slot's epoch (gate.EpochFrom) and ends
// when the slot is lost; a due OnReset function has been called. If not, the worker has nothing to do for the key but
// call Done.
//
// It waits for at most 100 ms until the cache shows what this controller wrote to the object: the event of a child that
// the last reconcile wrote often comes before that of the object.
func (c *Controller) Admit(ctx context.Context, key types.NamespacedName) (context.Context, bool) {
	c.wiring.admitted.Store(true)
	c.rota.share.ShowOwn(ctx, c.kind, key, c.name)
	s, known := c.slotOf(key)
	if !known {
		return ctx, false // its object is another member's now
	}
	if c.rota.share.Lacks(c.kind, s) {
		c.await(s, key)
		return ctx, false
	}
	uid, exists := c.rota.share.UID(c.kind, key)
	gone := !exists
	about := gate.Key{Queue: c.name, Namespace: key.Namespace, Name: key.Name}
	inner, leave, verdict := c.rota.gate.Enter(ctx, s, about, gone)
	c.rota.metrics.verdict(verdict)
	switch { // what was started for an object that is not there any more ends
	case verdict != gate.Admitted:
	case gone:
		c.rota.gate.EndTasks(about, nil)
	default: // a namesake may have been made since; with key UID it may be in another slot
		c.rota.gate.EndTasks(about, func(task context.Context) bool {
			by, _ := task.Value(admittedKey{}).(admitted)
			return by.slot == s && by.uid == uid
		})
	}
	// The gate forgets what it has parked when it is shut, for instance when a lapse is noticed.
	owing := verdict != gate.Admitted
	if verdict == gate.Admitted && gone && c.byUID() && !c.nameIsFree(inner, s, key) {
		leave()
		verdict = gate.Parked
	}
	if owing {
		c.owe(s, key) // before it leaves waiting: a deletion must always be in one of the two
	}
	// From here on the key counts as in flight, or belongs to somebody else.
	c.drop(s, key)
	if verdict != gate.Admitted {
		c.rota.gate.Recheck(s)
		return ctx, false
	}
	c.mu.Lock()
	c.keys.Begin(key, work.Flight[flight]{Slot: s, Gone: gone, With: flight{leave, c.rota.wall(), inner}})
	c.mu.Unlock()
	ctx = c.seen(admitted{rota: c.rota, slot: s, ctx: inner, controller: c, key: key, uid: uid}.in(inner))
	if c.byUID() {
		ctx = adapter.WithSubject(ctx, c.rota.share, adapter.Subject{Kind: c.kind, Name: key, Slot: s, Gone: gone})
	}
	c.reset(ctx, s, key)
	return ctx, true
}

// Done notes that a worker is done with the key. Call it after the key was added again, if the reconcile wants that:
// otherwise the slot may be given up before a deletion is reconciled. Call it before the queue's own Done, which lets
// another worker have the key.
func (c *Controller) Done(key types.NamespacedName) {
	c.mu.Lock()
	f, flew := c.keys.End(key)
	resets := c.resets.call != nil
	c.mu.Unlock()
	if !flew {
		if s, known := c.slotOf(key); known && c.drop(s, key) {
			c.rota.gate.Recheck(s)
			c.bypassed(key)
		}
		return
	}
	if gate.CutShort(f.With.ctx) {
		c.owe(f.Slot, key)
	} else {
		c.judge(key, f)
	}
	gone := resets && !c.rota.share.Exists(c.kind, key)
	c.mu.Lock()
	c.keys.Ended(key, f, c.rota.now(), f.With.ctx.Err() == nil, gone)
	c.mu.Unlock()
	f.With.leave()
}

// bypassed notes that a worker finished a key of this member without asking the gate. If other keys came to the gate,
// the worker may have given this one up. If none ever did, the workers may work on objects of other members.
func (c *Controller) bypassed(key types.NamespacedName) {
	if c.wiring.admitted.Load() {
		c.rota.log.V(1).Info("Done without Admit: a worker gave the key up", "controller", c.name, "object", key.String())
		return
	}
	c.fault("not admitted", "its workers are done with keys without Admit, so that others may work on the same objects: "+
		"sync with the function that Admit of its queue returns", "object", key.String())
}

// owe remembers a key that was not reconciled, if its object is gone and the slot may open here again. If the slot has
// opened meanwhile, owe enqueues the key.
func (c *Controller) owe(s slot.Slot, key types.NamespacedName) {
	if !c.rota.share.Exists(c.kind, key) && c.want(s, key) {
		c.enqueue([]types.NamespacedName{key}, PriorityEvent)
	}
}

// want remembers a key until its slot opens here. If the slot has been opened meanwhile, it returns true and does not
// remember the key: opened may have run before.
func (c *Controller) want(s slot.Slot, key types.NamespacedName) (open bool) {
	if !c.rota.share.Holds(s) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Owe(s, key)
	if !c.rota.gate.AdmitsGone(s) {
		return false // opened comes later than this
	}
	c.keys.Paid(key)
	return true
}

// opened enqueues, for slots that were opened: objects that changed, keys that waited for the gate, and owed keys, each
// once. It returns the other objects, which the caller has to enqueue once.
func (c *Controller) opened(set slot.Set, objects delivery.Opened, parked []gate.Key) (rest []types.NamespacedName) {
	objects = c.chosen(set, objects)
	keys := slices.Concat(objects.Deleted, objects.Changed)
	waited := map[types.NamespacedName]struct{}{}
	for _, key := range parked {
		if key.Queue == c.name {
			waited[types.NamespacedName{Namespace: key.Namespace, Name: key.Name}] = struct{}{}
		}
	}
	c.mu.Lock()
	for _, key := range c.keys.Opened(set) {
		waited[key] = struct{}{}
	}
	c.mu.Unlock()
	keys = slices.AppendSeq(keys, maps.Keys(waited))
	if len(keys)+len(objects.Recent)+len(objects.Others) > 0 {
		c.wiring.given.Store(true)
	}
	if len(keys) > 0 {
		c.enqueue(keys, PriorityEvent)
	}
	c.enqueue(objects.Recent, PriorityRecent)
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
		if c.rota.share.Exists(c.kind, key) {
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

const (
	// arrivals is how many objects of slots that were handed over wait in a controller's queue at a time, besides those
	// that changed lately. Nearly all have nothing to do, but the move dropped their timers (RequeueAfter), so they should
	// come soon. In queues without priorities, changes wait behind them.
	arrivals = 16
	// arrivalPeriod is the time between two checks whether workers have taken some.
	arrivalPeriod = 5 * time.Millisecond
)

// trickle enqueues keys as fast as workers take them, until all are enqueued or ctx ends. At most arrivals of them wait
// in the queue. So they cost no more load than the workers cause anyway, and other keys wait behind a few of them only.
func (c *Controller) trickle(ctx context.Context, keys []types.NamespacedName) {
	tick := time.NewTicker(arrivalPeriod)
	defer tick.Stop()
	for waiting := keys[:0:0]; len(keys) > 0; {
		waiting = slices.DeleteFunc(waiting, func(key types.NamespacedName) bool { return !c.queued(key) })
		n := min(arrivals-len(waiting), len(keys))
		if n > 0 {
			c.enqueue(keys[:n], PriorityOpened)
			waiting, keys = append(waiting, keys[:n]...), keys[n:]
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// queued reports whether a key is ready in the queue.
func (c *Controller) queued(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Ready(key)
}

// resume enqueues keys that the gate had parked and would admit now.
func (c *Controller) resume(parked []gate.Key) {
	var keys []types.NamespacedName
	for _, key := range parked {
		if key.Queue == c.name {
			keys = append(keys, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
		}
	}
	if len(keys) > 0 {
		c.enqueue(keys, PriorityEvent)
	}
}

func (c *Controller) waitingIn(s slot.Slot) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Waiting(s)
}

// forget drops all keys of slots that were lost.
func (c *Controller) forget(set slot.Set) {
	c.wiring.forgot.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Forget(set)
}

// registered returns all controllers.
func (r *Rota) registered() []*Controller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.controllers
}
