package work

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// Priority is the priority of enqueued keys. The numbers match controller-runtime's priority queue: higher comes first,
// and an event has 0. Queues without priorities take keys in order.
type Priority int

// Priorities.
const (
	// PriorityEvent is for objects that changed or were deleted while a slot was on its way here.
	PriorityEvent Priority = 0
	// PriorityRecent is for objects that changed shortly before the slot arrived. The former owner has reconciled most of
	// them, but the rest must not wait for all other objects.
	PriorityRecent Priority = -1
	// PriorityOpened is for all other objects of a slot that was opened.
	PriorityOpened Priority = -100
)

// Objects looks up objects; delivery.Share implements it. Its methods may be called concurrently and do not block.
type Objects interface {
	// Locate and Stored return the slot of a key; known is false if it cannot be determined. If the name does not
	// determine the slot, Stored returns the slot of the cached object of that name, and Locate also uses other sources.
	Locate(kind schema.GroupKind, key types.NamespacedName) (s slot.Slot, known bool)
	Stored(kind schema.GroupKind, key types.NamespacedName) (s slot.Slot, known bool)
	// UID returns the UID of the cached object of that name.
	UID(kind schema.GroupKind, key types.NamespacedName) (uid types.UID, exists bool)
	// Holds reports whether the slot's objects are cached or about to be. Lacks reports whether some cannot be yet.
	Holds(s slot.Slot) bool
	Lacks(kind schema.GroupKind, s slot.Slot) bool
	// IsLedElsewhere reports whether a stock leader works.
	IsLedElsewhere() bool
}

// Env is the environment of a Controller. Its functions may be called concurrently.
type Env struct {
	// Name is the controller's name, and Kind the kind of its objects.
	Name string
	Kind schema.GroupKind
	// ByUID is true if an object's slot cannot be computed from its name (slot.KeyUID).
	ByUID   bool
	Gate    *gate.Gate
	Objects Objects
	// Enqueue puts keys into the controller's queue, in order. It must not block.
	Enqueue func(keys []types.NamespacedName, priority Priority)
	// Now returns the monotonic time, Wall the wall clock, and After calls do after a delay.
	Now   func() time.Duration
	Wall  func() time.Time
	After func(wait time.Duration, do func())
	// Asked is called with each verdict of the gate.
	Asked func(gate.Verdict)
	// IsFree reports whether the API server has no object of that name. It blocks, at most until ctx ends. It is nil
	// without ByUID.
	IsFree func(ctx context.Context, key types.NamespacedName) (free bool, err error)
}

// Controller tracks the keys of one controller. Its methods follow a key through the queue: Add when the key enters it,
// Take when a worker gets the key, Admit before it is reconciled, Done when the worker is done with it. All of them may
// be called concurrently.
type Controller struct {
	env Env

	mu   sync.Mutex
	keys *Keys[types.NamespacedName, Flying]
}

// Flying is the data about a key in flight.
type Flying struct {
	// Since is when it was admitted, in whole seconds, and Begun is the same on the clock of Env.Now.
	Since time.Time
	Begun time.Duration
	// Context shows whether the reconcile was cut short.
	Context context.Context //nolint:containedctx // the context of the flight
	leave   func()
}

// Admission describes a key that was admitted.
type Admission struct {
	Slot slot.Slot
	// Gone is true if there is no object. Otherwise UID is the object's UID.
	Gone bool
	UID  types.UID
	// Context carries the slot's epoch (gate.EpochFrom) and ends when the slot is lost.
	Context context.Context //nolint:containedctx // the context of the flight
}

// New returns a controller without keys.
func New(env Env) *Controller {
	return &Controller{env: env, keys: NewKeys[types.NamespacedName, Flying]()}
}

// With calls do with the keys. do must not call other methods of the controller.
func (c *Controller) With(do func(*Keys[types.NamespacedName, Flying])) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.keys)
}

// Slot returns the slot of a key. With slot.KeyUID, that is the slot of the object of that name or, while the key is on
// its way, of its predecessor (rule R15): a key stays in its object's slot even if nothing else determines the slot any
// more.
func (c *Controller) Slot(key types.NamespacedName) (s slot.Slot, known bool) {
	if !c.env.ByUID {
		return c.env.Objects.Locate(c.env.Kind, key)
	}
	if s, known = c.env.Objects.Stored(c.env.Kind, key); known {
		return s, true
	}
	c.mu.Lock()
	s, known = c.keys.Slot(key)
	c.mu.Unlock()
	if known {
		return s, true
	}
	return c.env.Objects.Locate(c.env.Kind, key)
}

// exists reports whether there is an object of that name here.
func (c *Controller) exists(key types.NamespacedName) bool {
	_, exists := c.env.Objects.UID(c.env.Kind, key)
	return exists
}

// Add records that a key enters the queue. If it returns false, the key belongs to another member: do not add it to the
// queue. Its owner gets the same event.
func (c *Controller) Add(key types.NamespacedName) bool { return c.add(key, c.env.Now()) }

// Keeps reports whether Add would accept the key now: its slot is open here or on its way here.
func (c *Controller) Keeps(key types.NamespacedName) bool {
	s, known := c.Slot(key)
	return known && (c.env.Gate.Owns(s) || c.env.Objects.Holds(s) && !c.env.Objects.IsLedElsewhere())
}

// AddLater is Add for a key that enters the queue after a delay, such as a backoff.
func (c *Controller) AddLater(key types.NamespacedName) bool { return c.add(key, 0) }

func (c *Controller) add(key types.NamespacedName, since time.Duration) bool {
	s, known := c.Slot(key)
	if !known {
		return false
	}
	// A stock leader that works gets the same event, and all objects are enqueued when the rota's turn comes.
	if !c.env.Gate.Owns(s) && (c.env.Objects.IsLedElsewhere() || !c.want(s, key)) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Queue(s, key, since)
	return true
}

// Take records that a worker got the key from the queue, and returns how long the key has been ready there, 0 if it
// waited for a delay to end or arrived with its slot. stranger is true if the key had not entered the queue by Add,
// Enqueue or AddLater, or if its slot was lost since. For anew see Keys.TakeLapsed.
func (c *Controller) Take(key types.NamespacedName) (waited time.Duration, stranger, anew bool) {
	s, known := c.Slot(key)
	if !known {
		return 0, false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	since, queued := c.keys.Take(s, key)
	if since > 0 {
		waited = c.env.Now() - since
	}
	return waited, !queued, c.keys.TakeLapsed(key)
}

// Spread returns the delay to use for a key that asks for one. When a slot opens, all its objects are reconciled. If
// they ask for the same delay, as with RequeueAfter, they would stay in step from then on. So the first delay after
// that ends at a time that differs by key, unless that time has passed.
func (c *Controller) Spread(key types.NamespacedName, delay time.Duration) time.Duration {
	if delay < leastSpread {
		return delay
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	opened, flies := c.keys.OpenedSince(key)
	if !flies || opened == 0 {
		return delay
	}
	if due := opened + time.Duration(part(key)*float64(delay)) - c.env.Now(); due > 0 {
		return due
	}
	return delay
}

// leastSpread is the least delay that is spread. A shorter one may be a minimum time between two tries.
const leastSpread = 10 * time.Second

// part returns a number from 0 to 1 that differs between the objects of a slot.
func part(key types.NamespacedName) float64 {
	const slotBits = 12 // shared by the objects of a slot
	return float64(slot.KeyName.Hash(key.Namespace, key.Name, "")<<slotBits) / (1 << 64)
}

// Drop records that the worker no longer has the key, and reports whether it had.
func (c *Controller) Drop(key types.NamespacedName) (had bool) {
	s, known := c.Slot(key)
	return known && c.drop(s, key)
}

func (c *Controller) drop(s slot.Slot, key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.Drop(s, key)
}

// Admit reports whether the key may be reconciled. If not, the worker only has to call Done.
func (c *Controller) Admit(ctx context.Context, key types.NamespacedName) (Admission, bool) {
	s, known := c.Slot(key)
	if !known {
		return Admission{}, false // the object belongs to another member now
	}
	if c.env.Objects.Lacks(c.env.Kind, s) {
		c.await(s, key)
		return Admission{}, false
	}
	uid, exists := c.env.Objects.UID(c.env.Kind, key)
	about := gate.Key{Queue: c.env.Name, Namespace: key.Namespace, Name: key.Name}
	inner, leave, verdict := c.env.Gate.Enter(ctx, s, about, !exists)
	c.env.Asked(verdict)
	switch { // tasks for an object that no longer exists end
	case verdict != gate.Admitted:
	case !exists:
		c.env.Gate.EndTasks(about, nil)
	default: // a new object may have the name; with key UID it may be in another slot
		c.env.Gate.EndTasks(about, func(task context.Context) bool {
			in, of := startedBy(task)
			return in == s && of == uid
		})
	}
	// The gate drops parked keys when it is shut, for instance when it notices a lapse.
	owing := verdict != gate.Admitted
	if verdict == gate.Admitted && !exists && c.env.ByUID && !c.isFree(inner, s, key) {
		leave()
		verdict = gate.Parked
	}
	if owing {
		c.owe(s, key) // before Drop: a deletion must always be either owed or waiting
	}
	// From here on the key counts as in flight or belongs to another member.
	c.mu.Lock()
	inLoss := verdict == gate.Admitted && c.keys.InLoss(key)
	switch {
	case inLoss:
		c.keys.Queue(s, key, 0) // if it is a deletion, the slot waits for it
	case verdict == gate.Admitted:
		c.keys.Begin(key, Flight[Flying]{
			Slot: s, Gone: !exists, Arrived: c.keys.Arrived(key), With: Flying{c.env.Wall(), c.env.Now(), inner, leave},
		})
	}
	c.keys.Drop(s, key)
	c.mu.Unlock()
	if inLoss {
		leave()
		c.env.After(lossDelay, func() { c.env.Enqueue([]types.NamespacedName{key}, PriorityEvent) })
	}
	if verdict != gate.Admitted || inLoss {
		c.env.Gate.Recheck(s)
		return Admission{}, false
	}
	return Admission{Slot: s, Gone: !exists, UID: uid, Context: inner}, true
}

// lossDelay is how long a key waits if its slot comes back while OnLost is being called for it.
const lossDelay = 50 * time.Millisecond

// Done records that a worker is done with the key. If the reconcile wants the key to be added again, add it before
// Done; otherwise the slot may be given up before a deletion is reconciled. Call Done before the queue's own Done,
// which lets another worker have the key. judge is called with a flight that was not cut short. met is true if Meet was
// called.
//
// unasked is true if the gate was not asked about the key.
func (c *Controller) Done(key types.NamespacedName, met bool, judge func(Flight[Flying])) (unasked bool) {
	c.mu.Lock()
	f, flew := c.keys.End(key)
	c.mu.Unlock()
	if !flew {
		s, known := c.Slot(key)
		if unasked = known && c.drop(s, key); unasked {
			c.env.Gate.Recheck(s)
		}
		return unasked
	}
	if gate.CutShort(f.With.Context) {
		c.owe(f.Slot, key)
	} else {
		judge(f)
	}
	gone := met && !c.exists(key)
	c.mu.Lock()
	c.keys.Ended(key, f, c.env.Now(), f.With.Context.Err() == nil, gone)
	c.mu.Unlock()
	f.With.leave()
	return false
}

// owe remembers a key that was not reconciled, if its object is gone and the slot may open here again. If the slot has
// opened meanwhile, owe enqueues the key.
func (c *Controller) owe(s slot.Slot, key types.NamespacedName) {
	if !c.exists(key) && c.want(s, key) {
		c.env.Enqueue([]types.NamespacedName{key}, PriorityEvent)
	}
}

// want remembers a key until its slot opens here. If the slot has already been opened, it returns true and does not
// remember the key, since Opened may have run.
func (c *Controller) want(s slot.Slot, key types.NamespacedName) (open bool) {
	if !c.env.Objects.Holds(s) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Owe(s, key)
	if !c.env.Gate.AdmitsGone(s) {
		return false // Opened will run after this
	}
	c.keys.Paid(key)
	return true
}

// Opened enqueues keys of slots that were opened, each once: urgent keys, keys that the gate had parked, and owed ones.
// It returns how many there were.
func (c *Controller) Opened(set slot.Set, urgent []types.NamespacedName, parked []gate.Key) int {
	all := slices.Clone(urgent)
	waited := map[types.NamespacedName]struct{}{}
	wait := func(key types.NamespacedName) {
		if _, twice := waited[key]; !twice {
			waited[key] = struct{}{}
			all = append(all, key)
		}
	}
	for _, key := range parked {
		if key.Queue == c.env.Name {
			wait(NameOfKey(key))
		}
	}
	c.mu.Lock()
	owed := c.keys.Opened(set, c.env.Now())
	c.mu.Unlock()
	for _, key := range owed {
		wait(key)
	}
	if len(all) > 0 {
		c.env.Enqueue(all, PriorityEvent)
	}
	return len(all)
}

// Resume enqueues keys that the gate had parked and would admit now.
func (c *Controller) Resume(parked []gate.Key) {
	var keys []types.NamespacedName
	for _, key := range parked {
		if key.Queue == c.env.Name {
			keys = append(keys, NameOfKey(key))
		}
	}
	if len(keys) > 0 {
		c.env.Enqueue(keys, PriorityEvent)
	}
}

// Silence records that handlers no longer hear of the slots.
func (c *Controller) Silence(set slot.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Silence(set)
}

// Forget drops all keys of slots that were lost.
func (c *Controller) Forget(set slot.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Forget(set)
}

// Meet records that an admitted key is about to be reconciled. If regained is true, the caller calls OnLost first. For
// fresh and shown see Keys.Meet. If the slot has left meanwhile, the key is lost once its flight has ended.
func (c *Controller) Meet(s slot.Slot, key types.NamespacedName) (regained, fresh, shown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	regained = c.keys.Regain(key)
	if !c.env.Objects.Holds(s) { // Forget may have run before
		c.keys.Lose(s, key)
		return regained, true, false
	}
	fresh, shown = c.keys.Meet(s, key, c.exists)
	return regained, fresh, shown
}

// BeginLoss returns a lost key that has nothing in flight any more, with its slot; see Keys.BeginLoss.
func (c *Controller) BeginLoss() (key types.NamespacedName, s slot.Slot, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys.BeginLoss(func(s slot.Slot, key types.NamespacedName) bool {
		return !c.env.Gate.Has(s, gate.Key{Queue: c.env.Name, Namespace: key.Namespace, Name: key.Name})
	})
}

// await remembers a key that a worker took. It is enqueued once the kinds that its controller needs are complete.
func (c *Controller) await(s slot.Slot, key types.NamespacedName) {
	c.mu.Lock()
	if c.env.Objects.Holds(s) {
		c.keys.Await(s, key)
	}
	c.keys.Drop(s, key) // after Await, so that the key never stops waiting
	c.mu.Unlock()
	if !c.env.Objects.Lacks(c.env.Kind, s) { // Complete may have run before
		c.Complete(nil)
	}
	c.env.Gate.Recheck(s)
}

// Complete enqueues the keys that waited for kinds in slots that are no longer incomplete, followed by others.
func (c *Controller) Complete(others []types.NamespacedName) {
	c.mu.Lock()
	waited := c.keys.Complete(func(s slot.Slot) bool { return c.env.Objects.Lacks(c.env.Kind, s) })
	c.mu.Unlock()
	c.env.Enqueue(append(waited, others...), PriorityEvent)
}

// NameOfKey returns the name of the object that a key of the gate refers to.
func NameOfKey(key gate.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}
