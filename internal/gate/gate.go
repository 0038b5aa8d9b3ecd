package gate

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/slot"
)

// ErrLost is the cause (context.Cause) of contexts that end because their slot was lost.
var ErrLost = errors.New("the slot of this key is no longer owned by this member")

// ErrExpired is the cause of contexts that end because the member could not renew its Lease in time (rule R2).
var ErrExpired = errors.New("the lease of this member was not renewed in time")

// ErrHandover is the cause of contexts that end because the slot is handed over: contexts of duties and tasks, and of
// reconciles that run longer than a leaving member can wait.
var ErrHandover = errors.New("the slot of this key is handed over to another member")

// Key is what the gate admits: the key of an object, or a duty.
type Key struct {
	// Queue is the name of the queue the key came from, such as a controller's name. The gate does not interpret it.
	Queue string
	// Namespace is empty for cluster-scoped objects.
	Namespace, Name string
}

// state is the state of one slot.
//
//	          Open                 Drain              idle: nothing in flight or pending
//	shut ------------> open -------------> draining ------------------> idle
//	  ^                 ^                     |                          |
//	  |                 +------- Open --------+----------- Open ---------+
//	  +-- Shut, from every state
//	Expire leads from the three states on the right to lapsed. Open and Shut lead out of it.
type state uint8

const (
	shut state = iota
	open
	draining
	idle
	lapsed
)

// Gate admits keys. Create it with New. Its methods may be called concurrently.
//
// Invariants:
//  1. A key is admitted only if its slot is open, or drains and either the drain is soft, or the key's object is gone
//     and the drain does not leave deletions to the next owner (LeaveGone) (rules R5, R6).
//  2. Nothing is admitted at or after the deadline. If the deadline is moved later, a slot admits nothing until it is
//     opened again (rules R2, R13).
//  3. From the call of a drain's idle to the next Open of the slot, nothing is admitted in it.
type Gate struct {
	now func() time.Duration

	mu       sync.Mutex
	deadline time.Duration
	slots    []slotState
	inFlight int
	hottest  hottest
	// tasks are the running tasks. ending counts the tasks in flight because their contexts have ended.
	tasks  map[Key][]*entry
	ending int
	// mayLapsed is false if no slot is lapsed. It saves a look at every slot, since members ask often.
	mayLapsed bool
}

type slotState struct {
	state state
	epoch uint64
	// inFlight counts the entries in the list first, including holds, and the writes that Join admitted.
	inFlight int
	first    *entry
	// tasks are the running tasks. They are in flight from the moment their contexts end.
	tasks map[*entry]struct{}
	// parked holds keys that were not admitted. The value is true if Review leaves them parked.
	parked map[Key]bool
	// drain is nil unless the state is draining.
	drain *drain
	// long maps the keys whose last reconcile took longer than a moment to the time it took. lately is the latest of these
	// times. slow is above 0 if most reconciles take long.
	long   map[Key]time.Duration
	lately time.Duration
	slow   int
	// changes counts everything that may change whether the slot is idle.
	changes uint64
	// workers is how many keys in flight keep a worker busy: holds and tasks do not. load is its average since the slot
	// arrived.
	workers int
	load    average
}

// New returns a gate with every slot shut and a deadline of 0. slots includes the slots of duties. now is called under
// the gate's lock. It must never fall and must count while the machine sleeps: it is the clock of member.Time.Late, not
// the plain monotonic clock.
func New(slots slot.Count, now func() time.Duration) *Gate {
	return &Gate{now: now, slots: make([]slotState, slots)}
}

// Open opens the slots, owned since epoch, and ends their drains. It returns the keys that were parked in the slots,
// which the caller enqueues again. If the deadline has passed, the slots stay closed, and Expire reports that.
func (g *Gate) Open(set slot.Set, epoch uint64) []Key {
	g.mu.Lock()
	lost := g.lapse()
	late := g.now() >= g.deadline
	var parked []Key
	g.each(set, func(_ slot.Slot, s *slotState) {
		if s.state == shut {
			s.load = average{at: g.now()}
		}
		s.state, s.epoch, s.drain = open, epoch, nil
		s.changes++
		if late {
			s.state, g.mayLapsed = lapsed, true
			return
		}
		for key := range s.parked {
			parked = append(parked, key)
		}
		s.parked = nil
	})
	g.mu.Unlock()
	lose(lost, ErrExpired)
	return parked
}

// Shut refuses the slots' keys from now on. It cancels the contexts of keys in flight with ErrLost, drops parked keys,
// and ends drains without calling idle. Keys in flight count until they leave.
func (g *Gate) Shut(set slot.Set) {
	g.mu.Lock()
	var lost []*entry
	g.each(set, func(_ slot.Slot, s *slotState) {
		s.state, s.parked, s.drain, s.long = shut, nil, nil, nil
		s.changes++
		g.endTasks(s)
		lost = s.entries(lost)
	})
	g.mu.Unlock()
	lose(lost, ErrLost)
}

// SetDeadline moves the deadline: nothing is admitted from at on. If the former deadline has passed, the gate has
// lapsed (rule R13). The slots then stay closed until they are opened again, and Expire reports that.
func (g *Gate) SetDeadline(at time.Duration) {
	g.mu.Lock()
	lost := g.lapse()
	g.deadline = at
	g.mu.Unlock()
	lose(lost, ErrExpired)
}

// Expire cancels everything in flight with ErrExpired, and ends drains, if the deadline has passed.
//
// It returns true if the deadline closed slots that were neither opened nor shut since. Time passes between a decision
// and SetDeadline or Open, so the member that decided may not know. Report it to the member, or it takes these slots to
// be open forever.
func (g *Gate) Expire() (lapsed bool) {
	g.mu.Lock()
	lost := g.lapse()
	lapsed = g.hasLapsed()
	g.mu.Unlock()
	lose(lost, ErrExpired)
	return lapsed
}

func (g *Gate) hasLapsed() bool {
	g.mayLapsed = g.mayLapsed && slices.ContainsFunc(g.slots, func(s slotState) bool { return s.state == lapsed })
	return g.mayLapsed
}

// lapse closes the slots if the deadline has passed. It returns the entries to cancel.
func (g *Gate) lapse() []*entry {
	if g.now() < g.deadline {
		return nil
	}
	var lost []*entry
	for i := range g.slots {
		s := &g.slots[i]
		if s.state == shut || s.state == lapsed {
			continue
		}
		s.state, s.drain, g.mayLapsed = lapsed, nil, true
		s.changes++
		g.endTasks(s)
		lost = s.entries(lost)
	}
	return lost
}

func (g *Gate) each(set slot.Set, do func(slot.Slot, *slotState)) {
	for i := range g.slots {
		if set.Has(slot.Slot(i)) {
			do(slot.Slot(i), &g.slots[i])
		}
	}
}

// Flight is a key, hold or task in flight.
type Flight struct {
	Key  Key
	Slot slot.Slot
	// For is how long it has been in flight.
	For time.Duration
	// Lost is true if its context has been canceled.
	Lost bool
	// Task is true for a task (Extend); For then counts from the end of its context.
	Task bool
}

// InFlight returns how many keys and holds are in flight, including lost ones.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// InFlightIn returns how many are in flight in slot s.
func (g *Gate) InFlightIn(s slot.Slot) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots[s].inFlight
}

// Parked returns how many keys are parked.
func (g *Gate) Parked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for i := range g.slots {
		n += len(g.slots[i].parked)
	}
	return n
}

// OpenSet returns the slots that currently admit every key. After the deadline it is empty.
func (g *Gate) OpenSet() slot.Set {
	return g.where(func(s *slotState) bool { return s.state == open })
}

// Working returns the slots that still admit keys: those in OpenSet, and those in a soft drain. A soft drain can last
// as long as a reconcile.
func (g *Gate) Working() slot.Set {
	return g.where(func(s *slotState) bool {
		return s.state == open || s.state == draining && s.drain != nil && !s.drain.hard
	})
}

// where returns the slots for which is returns true. After the deadline it returns none.
func (g *Gate) where(is func(*slotState) bool) slot.Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	var set slot.Set
	if g.now() >= g.deadline {
		return set
	}
	for i := range g.slots {
		if is(&g.slots[i]) {
			set.Add(slot.Slot(i))
		}
	}
	return set
}

// Epoch returns the epoch for which slot s was last opened, 0 if never.
func (g *Gate) Epoch(s slot.Slot) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots[s].epoch
}

// Stuck returns the keys that have been in flight for at least the given time, longest first. It omits holds.
func (g *Gate) Stuck(older time.Duration) []Flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	var out []Flight
	for i := range g.slots {
		for e := g.slots[i].first; e != nil; e = e.next {
			if d := now - e.since; d >= older && !e.hold {
				out = append(out, Flight{Key: e.key, Slot: e.slot, For: d, Lost: e.Err() != nil, Task: e.task})
			}
		}
	}
	slices.SortFunc(out, func(a, b Flight) int { return cmp.Compare(b.For, a.For) })
	return out
}
