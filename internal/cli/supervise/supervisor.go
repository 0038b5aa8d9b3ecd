package supervise

import (
	"context"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// settleTime is how long a process for all slots waits for more of them before it is started with those it has. Slots
	// come from several members, one after the other.
	settleTime = time.Second
	// lookTime is how often the deadline is checked, and lineTime how often orphans are reaped, and a command line is
	// computed that only a change of namespaces can have changed.
	lookTime, lineTime = 100 * time.Millisecond, 2 * time.Second
	// queue is the queue name of processes that are being stopped, in status and events.
	queue = "rota.dev/run"
)

// supervisorEnv is the environment of a supervisor.
type supervisorEnv struct {
	// Kinds are the kinds of the objects that the command works on.
	Kinds []string
	// Separate is true if each slot has a process. Otherwise one process has all slots.
	Separate bool
	// StopTimeout is how long a process may take to exit after SIGTERM. Then its group gets SIGKILL.
	StopTimeout time.Duration
	// MinUptime is how long a process runs before it gives up slots to other live members, unless this member leaves.
	MinUptime time.Duration
	// FenceDelay is how long slots wait after a process that had them was killed or exited by itself: the API server may
	// still work on its last write.
	FenceDelay time.Duration
	// Line returns the command line for slots. ok is false if there is nothing to do in them.
	Line func(slot.Set) (l line, ok bool, err error)
	// Late returns the time on the deadline clock.
	Late func() time.Duration
	Log  logr.Logger
	// Out and Err are the output of processes.
	Out, Err *os.File
}

// supervisor runs processes for the slots of a member. A slot is drained when no process has it.
type supervisor struct {
	supervisorEnv
	kick chan struct{}

	mu       sync.Mutex
	open     slot.Set
	idle     map[slot.Slot]func(slot.Slot, []table.Gone) // of slots that are being drained
	deadline time.Duration
	leaving  bool
	changed  time.Time // when slots last came
	units    map[slot.Slot]*unit
	quiet    map[slot.Slot]time.Time // until when slots wait for FenceDelay
	// ended is the exit code of a process that exited by itself, once one has.
	ended chan int
}

// unit is a process with its slots: one slot if Separate is set, or all of them.
type unit struct {
	process *process // nil while none runs
	slots   slot.Set // of process
	line    line     // of process
	began   time.Time
	lined   time.Time // when a command line was last computed
	// stopping is when the process was first asked to exit, or killed; zero if it was not.
	stopping time.Time
	// unclean is true if the process was killed, or exited without being asked to.
	unclean bool
}

var _ controllers.Keeper = (*supervisor)(nil)

func newSupervisor(env supervisorEnv) *supervisor {
	return &supervisor{supervisorEnv: env, kick: make(chan struct{}, 1), units: map[slot.Slot]*unit{},
		quiet: map[slot.Slot]time.Time{},
		idle:  map[slot.Slot]func(slot.Slot, []table.Gone){}, ended: make(chan int, 1)}
}

// Kinds implements controllers.Keeper.
func (s *supervisor) Kinds() []string { return s.supervisorEnv.Kinds }

// Address implements controllers.Keeper.
func (s *supervisor) Address() string { return "" }

// Warm implements controllers.Keeper.
func (s *supervisor) Warm(context.Context, slot.Set) error { return nil }

// Load implements controllers.Keeper. A process lists its objects when it starts.
func (s *supervisor) Load(context.Context, slot.Set, bool, []table.Gone) error { return nil }

// CatchUp implements controllers.Keeper.
func (s *supervisor) CatchUp(context.Context, slot.Set) error { return nil }

// Open implements controllers.Keeper.
func (s *supervisor) Open(set slot.Set, _ uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range set.Slots() {
		delete(s.idle, n)
	}
	if more := set.Minus(s.open); !more.Empty() {
		s.changed = time.Now()
	}
	s.open = s.open.Union(set)
	s.wake()
}

// Drain implements controllers.Keeper.
func (s *supervisor) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range set.Slots() {
		s.idle[n] = idle
	}
	s.wake()
}

// Shut implements controllers.Keeper. Other members may work on the slots, so their processes are killed.
func (s *supervisor) Shut(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.Minus(set)
	for _, n := range set.Slots() {
		delete(s.idle, n)
	}
	for _, u := range s.units {
		if lost := u.slots.Intersect(set); u.process != nil && !lost.Empty() {
			s.kill(u, "another member may have the slots")
		}
	}
	s.wake()
}

// SetDeadline implements controllers.Keeper.
func (s *supervisor) SetDeadline(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
}

// Flights implements controllers.Keeper: processes that were asked to exit or killed, each with a slot that waits for
// it.
func (s *supervisor) Flights(older time.Duration) (out []gate.Flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		since := time.Since(u.stopping)
		if u.process == nil || u.stopping.IsZero() || since < older {
			continue
		}
		f := gate.Flight{Key: gate.Key{Queue: queue, Name: u.line.args[0]}, Slot: u.slots.Slots()[0], For: since}
		for _, n := range u.slots.Slots() {
			if s.idle[n] != nil {
				f.Slot = n
				break
			}
		}
		out = append(out, f)
	}
	return out
}

// leave announces that the member leaves, so that no process keeps its slots for MinUptime.
func (s *supervisor) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	s.wake()
}

// running returns the processes.
func (s *supervisor) running() (out []*process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		if u.process != nil {
			out = append(out, u.process)
		}
	}
	return out
}

func (s *supervisor) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run starts and stops processes until ctx ends. Then it kills those that are left, and waits for them.
func (s *supervisor) run(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	orphans := time.NewTicker(lineTime)
	defer orphans.Stop()
	for ctx.Err() == nil {
		s.look()
		select {
		case <-tick.C:
		case <-s.kick:
		case <-orphans.C:
			reapOrphans(s.running())
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		if u.process != nil {
			s.kill(u, "this member has ended")
			<-u.process.done
		}
	}
}

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
	held := slot.Set{}
	for _, u := range s.units {
		if u.process != nil {
			held = held.Union(u.slots)
		}
	}
	for n, idle := range s.idle {
		if !held.Has(n) && s.given(n) && !s.waits(n) {
			delete(s.idle, n)
			s.open.Remove(n)
			idle(n, nil)
		}
	}
}

// division returns the slots by unit. Units with a process and no slots are included.
func (s *supervisor) division() map[slot.Slot]slot.Set {
	out := map[slot.Slot]slot.Set{}
	for first := range s.units {
		out[first] = slot.Set{}
	}
	if !s.Separate {
		out[0] = s.open
		return out
	}
	for _, n := range s.open.Slots() {
		out[n] = slot.SetOf(slot.Range{First: n, Last: n})
	}
	return out
}

// waits reports whether a slot waits for FenceDelay.
func (s *supervisor) waits(n slot.Slot) bool {
	until, quiet := s.quiet[n]
	if quiet && time.Now().After(until) {
		delete(s.quiet, n)
		return false
	}
	return quiet
}

// given reports whether a slot that is being drained is given up now. A process that has just started keeps its slots
// for a while.
func (s *supervisor) given(n slot.Slot) bool {
	if s.idle[n] == nil {
		return false
	}
	u := s.units[0]
	if s.Separate {
		u = s.units[n]
	}
	return s.leaving || u == nil || u.process == nil || !u.slots.Has(n) || !u.stopping.IsZero() ||
		time.Since(u.began) >= s.MinUptime
}

// reap notices that a process has exited. If it was not asked to, the member leaves, and the rest of its group is asked
// to exit.
func (s *supervisor) reap(u *unit) {
	if u.process == nil {
		return
	}
	select {
	case <-u.process.exited:
		if u.stopping.IsZero() {
			s.Log.Info("The command has exited by itself", "code", u.process.code, "slots", u.slots.String())
			s.end(u.process.code)
			u.stopping, u.unclean = time.Now(), true
			u.process.signal(syscall.SIGTERM)
		}
	default:
		return
	}
	select {
	case <-u.process.done:
	default:
		return
	}
	s.Log.Info("The command and its process group have exited", "code", u.process.code, "slots", u.slots.String())
	if u.unclean {
		for _, n := range u.slots.Slots() {
			s.quiet[n] = time.Now().Add(s.FenceDelay)
		}
	}
	u.process, u.slots, u.stopping, u.lined, u.unclean = nil, slot.Set{}, time.Time{}, time.Time{}, false
}

// end has the member leave. The command is not started again here.
func (s *supervisor) end(code int) {
	s.leaving = true
	select {
	case s.ended <- code:
	default:
	}
}

// settle starts or stops the process of a unit so that it has the slots of set.
func (s *supervisor) settle(u *unit, set slot.Set, late bool) {
	want := set
	for n := range s.idle {
		if s.given(n) {
			want.Remove(n)
		}
	}
	switch settling := !s.Separate && time.Since(s.changed) < settleTime; {
	case u.process == nil:
		if !late && !s.leaving && !want.Empty() && !settling && !s.anyWaits(want) {
			s.start(u, want)
		}
	case !u.stopping.IsZero():
		if time.Since(u.stopping) >= s.StopTimeout {
			s.kill(u, "it did not exit in time")
		}
	case s.fits(u, want, settling):
	default:
		s.Log.Info("Asking the command to exit", "slots", u.slots.String(), "next", want.String())
		u.stopping = time.Now()
		u.process.signal(syscall.SIGTERM)
	}
}

// anyWaits reports whether one of the slots waits for FenceDelay.
func (s *supervisor) anyWaits(set slot.Set) bool { return slices.ContainsFunc(set.Slots(), s.waits) }

// fits reports whether the process of a unit may go on although slots may have come or gone.
func (s *supervisor) fits(u *unit, want slot.Set, settling bool) bool {
	if lost := u.slots.Minus(want); !lost.Empty() {
		return false
	}
	if settling || want == u.slots && time.Since(u.lined) < lineTime {
		return true
	}
	u.lined = time.Now()
	l, ok, err := s.Line(want)
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
	if time.Since(u.lined) < lineTime && u.lined.After(s.changed) {
		return // there was nothing to do for it just now
	}
	u.lined = time.Now()
	l, ok, err := s.Line(set)
	switch {
	case err != nil:
		s.Log.Error(err, "Cannot fill in the command's arguments", "slots", set.String())
		s.end(1)
	case ok:
		s.Log.Info("Starting the command", "slots", set.String(), "args", l.args)
		u.process, u.slots, u.line, u.began = start(l, s.Out, s.Err), set, l, time.Now()
	}
}

func (s *supervisor) kill(u *unit, why string) {
	select {
	case <-u.process.done:
		return
	default:
	}
	if !u.unclean {
		s.Log.Info("Killing the command", "cause", why, "slots", u.slots.String())
	}
	if u.unclean = true; u.stopping.IsZero() {
		u.stopping = time.Now()
	}
	u.process.signal(syscall.SIGKILL)
}
