package supervise

import (
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// settleTime is how long a process for all slots waits for more of them before it is started with those it has. Slots
// come from several members, one after the other.
const settleTime = time.Second

// supervisorEnv is the environment of a supervisor.
type supervisorEnv struct {
	processesEnv
	// Separate is true if each slot has a process. Otherwise one process has all slots.
	Separate bool
	// MinUptime is how long a process runs before it gives up slots to other live members, unless this member leaves.
	MinUptime time.Duration
	// Line returns the command line for slots. ok is false if there is nothing to do in them.
	Line func(slot.Set) (l line, ok bool, err error)
}

// supervisor restarts a program whenever its share changes: it runs a process for each slot, or one for all of them.
type supervisor struct {
	processes
	env     supervisorEnv
	changed time.Duration // when slots last came
}

var _ controllers.Keeper = (*supervisor)(nil)

func newSupervisor(env supervisorEnv) *supervisor {
	return &supervisor{processes: newProcesses(env.processesEnv), env: env}
}

// Warm implements controllers.Keeper.
func (s *supervisor) Warm(context.Context, slot.Set) error { return nil }

// Load implements controllers.Keeper. A process lists its objects when it starts.
func (s *supervisor) Load(context.Context, slot.Set, bool, []table.Gone) error { return nil }

// Open implements controllers.Keeper.
func (s *supervisor) Open(set slot.Set, _ uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range set.Slots() {
		delete(s.idle, n)
	}
	if more := set.Minus(s.open); !more.Empty() {
		s.changed = s.Now()
	}
	s.open = s.open.Union(set)
	s.wake()
}

// Drain implements controllers.Keeper.
func (s *supervisor) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain(set, idle)
}

// Shut implements controllers.Keeper.
func (s *supervisor) Shut(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut(set)
}

// SetDeadline implements controllers.Keeper.
func (s *supervisor) SetDeadline(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
}

// run starts and stops processes until ctx ends.
func (s *supervisor) run(ctx context.Context) { s.loop(ctx, s.look) }

// look does what is due.
func (s *supervisor) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.Late() >= s.deadline
	for first, set := range s.division() {
		u := s.units[first]
		if u == nil {
			u = &unit{}
			s.units[first] = u
		}
		s.reap(u)
		if late && u.process != nil {
			s.kill(u, "the Lease was not renewed in time")
		}
		s.settle(u, set, late)
	}
	s.release(s.given, func(slot.Slot) []table.Gone { return nil })
}

// division returns the slots by unit. Units with a process and no slots are included.
func (s *supervisor) division() map[slot.Slot]slot.Set {
	out := map[slot.Slot]slot.Set{}
	for first := range s.units {
		out[first] = slot.Set{}
	}
	if !s.env.Separate {
		out[0] = s.open
		return out
	}
	for _, n := range s.open.Slots() {
		out[n] = slot.SetOf(slot.Range{First: n, Last: n})
	}
	return out
}

// given reports whether a slot that is being drained is given up now. A process that has just started keeps its slots
// for a while.
func (s *supervisor) given(n slot.Slot) bool {
	if s.idle[n] == nil {
		return false
	}
	u := s.units[0]
	if s.env.Separate {
		u = s.units[n]
	}
	return s.leaving || u == nil || u.process == nil || !u.slots.Has(n) || u.stopping ||
		s.Now()-u.began >= s.env.MinUptime
}

// settle starts or stops the process of a unit so that it has the slots of set.
func (s *supervisor) settle(u *unit, set slot.Set, late bool) {
	want := set
	for n := range s.idle {
		if s.given(n) {
			want.Remove(n)
		}
	}
	switch settling := !s.env.Separate && s.Now()-s.changed < settleTime; {
	case u.process == nil:
		if !late && !s.leaving && !want.Empty() && !settling && !slices.ContainsFunc(want.Slots(), s.waits) {
			s.start(u, want)
		}
	case u.stopping:
		s.killOverdue(u)
	case s.fits(u, want, settling):
	default:
		s.Log.Info("Asking the command to exit", "slots", u.slots.String(), "next", want.String())
		s.terminate(u)
	}
}

// fits reports whether the process of a unit may go on although slots may have come or gone.
func (s *supervisor) fits(u *unit, want slot.Set, settling bool) bool {
	if lost := u.slots.Minus(want); !lost.Empty() {
		return false
	}
	if settling || want == u.slots && s.Now()-u.lined < lineTime {
		return true
	}
	u.lined = s.Now()
	l, ok, err := s.env.Line(want)
	if err != nil {
		s.Log.Error(err, "Cannot fill in the command's arguments", "slots", want.String())
		s.end(1)
		return true
	}
	if !ok || l.within(u.line) {
		u.slots = want
		return true
	}
	return false
}

// start starts the process of a unit, unless there is nothing to do for it.
func (s *supervisor) start(u *unit, set slot.Set) {
	if u.lined > 0 && s.Now()-u.lined < lineTime && u.lined > s.changed {
		return // there was nothing to do for it just now
	}
	u.lined = s.Now()
	l, ok, err := s.env.Line(set)
	switch {
	case err != nil:
		s.Log.Error(err, "Cannot fill in the command's arguments", "slots", set.String())
		s.end(1)
	case ok:
		s.Log.Info("Starting the command", "slots", set.String(), "args", l.args)
		u.process, u.slots, u.line, u.began = s.Start(l), set, l, s.Now()
	}
}
