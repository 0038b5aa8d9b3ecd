package rota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/adapter"
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
	// outcomes are the results of its reconciles.
	outcomes outcomes
	// begun is closed once its workers run.
	begin sync.Once
	begun chan struct{}
	// informer is the one that the queue was made with; nil if NewController made the controller. Guarded by rota.mu.
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	explain func() string // why its workers do not run
	// awaiting are keys that wait for a kind to be listed; see await.
	awaiting map[slot.Slot]map[types.NamespacedName]struct{}
	// waiting are the keys in the queue by slot, those that wait for a backoff or a RequeueAfter included, and those that
	// a worker has taken and that are not admitted yet.
	waiting map[slot.Slot]map[types.NamespacedName]place
	flying  map[types.NamespacedName]flight
	// claimed are the items whose workers sync an object.
	claimed map[types.NamespacedName]any
	// where are, with slot.KeyUID, the slots of keys that are waiting, in flight or owed. A key stays in its object's
	// slot, even when nothing else tells the slot any more. nil with other keys.
	where  map[types.NamespacedName]slot.Slot
	wiring wiring
	// owed are keys to enqueue when their slot opens: keys of deleted objects that could not be reconciled since the gate
	// was shut, and keys that were added while their slot was on its way here, perhaps because of an object of another
	// kind. No object leads to the former any more, and the latter would come late.
	owed   map[slot.Slot]map[types.NamespacedName]struct{}
	resets resets
	// deletedAt is when a deletion was last reconciled in each slot.
	deletedAt map[slot.Slot]time.Duration
}

// flight is a key that was admitted.
type flight struct {
	slot  slot.Slot
	leave func()
	ctx   context.Context //nolint:containedctx // tells whether the reconcile was cut short
	// err is the result, if ended is true.
	ended bool
	err   error
	// gone says that its object was gone when it was admitted.
	gone bool
}

// place says where a waiting key is. It may be in the queue again while a worker has it.
type place struct {
	queued, taken bool
	// since is when it became ready for a worker; 0: it waits for a delay to end.
	since time.Duration
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
	if r.shadow != nil {
		return nil, fmt.Errorf("controller %s: this rota is a shadow, which works on nothing", name)
	}
	if late {
		return nil, fmt.Errorf("controller %s: Run was called before: set up the controllers of sharded kinds before the "+
			"manager starts, or have the member wait for them with JoinAfter of the rota.Rota", name)
	}
	if err := r.share.Shard(kind); err != nil {
		return nil, fmt.Errorf("controller %s: %w", name, err)
	}
	c := &Controller{
		rota: r, name: name, kind: kind, enqueue: enqueue, begun: make(chan struct{}),
		waiting: map[slot.Slot]map[types.NamespacedName]place{},
		flying:  map[types.NamespacedName]flight{},
		claimed: map[types.NamespacedName]any{},
		owed:    map[slot.Slot]map[types.NamespacedName]struct{}{},
	}
	if r.cfg.Key == slot.KeyUID {
		c.where = map[types.NamespacedName]slot.Slot{}
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
	c.place(s, key, func(p *place) {
		if p.queued = true; p.since == 0 {
			p.since = since
		}
	})
	return true
}

// oldest returns since when the oldest key of each slot has been waiting for a worker.
func (c *Controller) oldest(since map[slot.Slot]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, keys := range c.waiting {
		for _, p := range keys {
			if before, known := since[s]; p.since > 0 && (!known || p.since < before) {
				since[s] = p.since
			}
		}
	}
}

// Take notes that a worker got the key from the queue.
func (c *Controller) Take(key types.NamespacedName) {
	s, known := c.slotOf(key)
	if !known {
		return
	}
	stranger := false
	c.place(s, key, func(p *place) {
		stranger = !p.queued
		*p = place{taken: true}
	})
	// Keys of slots that were lost since are forgotten. Until then, everything in the queue came by Add or Enqueue.
	if stranger && !c.wiring.added.Load() && !c.wiring.forgot.Load() {
		c.fault("not added", "a worker got a key that never came to the queue by Add: handlers have to add to the Queue "+
			"that NewQueue returned, and not to the work queue that it wraps", "object", key.String())
	}
}

// slotOf returns the slot of a key. With slot.KeyUID it is the slot of the object of that name, or of the one that was
// there before (rule R15).
func (c *Controller) slotOf(key types.NamespacedName) (s slot.Slot, known bool) {
	if c.where == nil {
		return c.rota.share.Locate(c.kind, key)
	}
	if s, known = c.rota.share.Stored(c.kind, key); known {
		return s, true
	}
	c.mu.Lock()
	s, known = c.where[key]
	c.mu.Unlock()
	if known {
		return s, true
	}
	return c.rota.share.Locate(c.kind, key)
}

// move notes the slot of a key. c.mu is held.
func (c *Controller) move(s slot.Slot, key types.NamespacedName) {
	if c.where == nil {
		return
	}
	before, known := c.where[key]
	c.where[key] = s
	if !known || before == s {
		return
	}
	if p, ok := c.waiting[before][key]; ok {
		delete(c.waiting[before], key)
		if c.waiting[s] == nil {
			c.waiting[s] = map[types.NamespacedName]place{}
		}
		c.waiting[s][key] = p
	}
	delete(c.owed[before], key) // there is a namesake now
}

// forgetSlot forgets the slot of a key that is not waiting, in flight or owed any more. c.mu is held.
func (c *Controller) forgetSlot(key types.NamespacedName) {
	s, known := c.where[key]
	if !known {
		return
	}
	_, waits := c.waiting[s][key]
	_, flies := c.flying[key]
	_, owed := c.owed[s][key]
	if !waits && !flies && !owed {
		delete(c.where, key)
	}
}

func (c *Controller) place(s slot.Slot, key types.NamespacedName, change func(*place)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.forgetSlot(key)
	c.move(s, key)
	p := c.waiting[s][key]
	change(&p)
	switch {
	case p == place{}:
		delete(c.waiting[s], key)
		if len(c.waiting[s]) == 0 {
			delete(c.waiting, s)
		}
		return
	case c.waiting[s] == nil:
		c.waiting[s] = map[types.NamespacedName]place{}
	}
	c.waiting[s][key] = p
}

// Admit asks whether the key may be reconciled. If so, the context carries the slot's epoch (gate.EpochFrom) and ends
// when the slot is lost; a due OnReset function has been called. If not, the worker has nothing to do for the key but
// call Done.
//
// It waits for at most 100 ms until the cache shows what this member wrote to the object: the event of a child that the
// last reconcile wrote often comes before that of the object.
func (c *Controller) Admit(ctx context.Context, key types.NamespacedName) (context.Context, bool) {
	c.wiring.admitted.Store(true)
	c.rota.share.ShowOwn(ctx, c.kind, key)
	s, known := c.slotOf(key)
	if !known {
		return ctx, false // its object is another member's now
	}
	if c.rota.share.Lacks(c.kind, s) {
		c.await(s, key)
		return ctx, false
	}
	gone := !c.rota.share.Exists(c.kind, key)
	about := gate.Key{Queue: c.name, Namespace: key.Namespace, Name: key.Name}
	inner, leave, verdict := c.rota.gate.Enter(ctx, s, about, gone)
	c.rota.metrics.verdict(verdict)
	switch { // what was started for an object that is not there any more ends
	case verdict != gate.Admitted:
	case gone:
		c.rota.gate.EndTasks(about, nil)
	case c.where != nil: // with key UID a namesake may be in another slot
		c.rota.gate.EndTasks(about, func(of slot.Slot) bool { return of == s })
	}
	// The gate forgets what it has parked when it is shut, for instance when a lapse is noticed.
	owing := verdict != gate.Admitted
	if verdict == gate.Admitted && gone && c.where != nil && !c.nameIsFree(inner, s, key) {
		leave()
		verdict = gate.Parked
	}
	if owing {
		c.owe(s, key) // before it leaves waiting: a deletion must always be in one of the two
	}
	// From here on the key counts as in flight, or belongs to somebody else.
	c.place(s, key, func(p *place) { p.taken = false })
	if verdict != gate.Admitted {
		c.rota.gate.Recheck(s)
		return ctx, false
	}
	c.mu.Lock()
	c.move(s, key)
	c.flying[key] = flight{slot: s, leave: leave, ctx: inner, gone: gone}
	c.mu.Unlock()
	ctx = context.WithValue(inner, slotKey{}, admitted{slot: s, ctx: inner, controller: c, key: key})
	if c.where != nil {
		ctx = adapter.WithSubject(ctx, adapter.Subject{Kind: c.kind, Name: key, Slot: s, Gone: gone})
	}
	c.reset(ctx, s, key)
	return ctx, true
}

// Done notes that a worker is done with the key. Call it after the key was added again, if the reconcile wants that:
// otherwise the slot may be given up before a deletion is reconciled. Call it before the queue's own Done, which lets
// another worker have the key.
func (c *Controller) Done(key types.NamespacedName) {
	c.mu.Lock()
	f, ok := c.flying[key]
	delete(c.flying, key)
	resets := c.resets.call != nil
	c.mu.Unlock()
	if !ok {
		s, known := c.slotOf(key)
		c.mu.Lock()
		taken := known && c.waiting[s][key].taken
		c.mu.Unlock()
		if taken {
			c.place(s, key, func(p *place) { p.taken = false })
			c.rota.gate.Recheck(s)
			c.bypassed(key)
		}
		return
	}
	if gate.CutShort(f.ctx) {
		c.owe(f.slot, key)
	} else {
		c.judge(key, f)
	}
	gone := resets && !c.rota.share.Exists(c.kind, key)
	c.mu.Lock()
	if f.gone && f.ctx.Err() == nil && !c.waiting[f.slot][key].queued {
		if c.deletedAt == nil {
			c.deletedAt = map[slot.Slot]time.Duration{}
		}
		c.deletedAt[f.slot] = c.rota.now()
	}
	c.forgetSlot(key)
	c.resets.ended(f, key, gone)
	c.mu.Unlock()
	f.leave()
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
	if c.owed[s] == nil {
		c.owed[s] = map[types.NamespacedName]struct{}{}
	}
	c.move(s, key)
	c.owed[s][key] = struct{}{}
	if !c.rota.gate.AdmitsGone(s) {
		return false // opened comes later than this
	}
	delete(c.owed[s], key)
	return true
}

// opened enqueues, for slots that were opened: objects that changed, keys that waited for the gate, and owed keys, each
// once. It returns the other objects, which the caller has to enqueue once.
func (c *Controller) opened(set slot.Set, objects delivery.Opened, parked []gate.Key) (rest []types.NamespacedName) {
	keys := slices.Concat(objects.Deleted, objects.Changed)
	waited := map[types.NamespacedName]struct{}{}
	for _, key := range parked {
		if key.Queue == c.name {
			waited[types.NamespacedName{Namespace: key.Namespace, Name: key.Name}] = struct{}{}
		}
	}
	c.mu.Lock()
	for s, owed := range c.owed {
		if set.Has(s) {
			maps.Copy(waited, owed)
			delete(c.owed, s)
		}
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
	s, known := c.slotOf(key)
	if !known {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting[s][key]
	return p.queued && p.since > 0
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
	keys := make([]types.NamespacedName, 0, len(c.waiting[s]))
	for key := range c.waiting[s] {
		keys = append(keys, key)
	}
	return keys
}

// forget drops all keys of slots that were lost.
func (c *Controller) forget(set slot.Set) {
	c.wiring.forgot.Store(true)
	c.outcomes.forget(set)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.waiting, func(s slot.Slot, _ map[types.NamespacedName]place) bool { return set.Has(s) })
	maps.DeleteFunc(c.owed, func(s slot.Slot, _ map[types.NamespacedName]struct{}) bool { return set.Has(s) })
	maps.DeleteFunc(c.awaiting, func(s slot.Slot, _ map[types.NamespacedName]struct{}) bool { return set.Has(s) })
	maps.DeleteFunc(c.where, func(key types.NamespacedName, s slot.Slot) bool {
		_, flies := c.flying[key]
		return set.Has(s) && !flies
	})
}
