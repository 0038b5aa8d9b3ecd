package supervise

import (
	"context"
	"os"
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
	// lookTime is how often the deadline is checked.
	lookTime = 100 * time.Millisecond
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
	// Line returns the command line for slots, or ok=false if no process is needed for them now.
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
	// ended is the exit code of a process that exited by itself, once one has.
	ended chan int
	// restarts counts processes started after others, for tests and the log.
	starts int
}

// unit is a process with its slots: one slot if Separate is set, or all of them.
type unit struct {
	process *process // nil while none runs
	slots   slot.Set // of process
	line    line     // of process
	began   time.Time
	// stopping is when the process was first asked to exit, or killed; zero if it was not.
	stopping time.Time
	killed   bool
}

var _ controllers.Keeper = (*supervisor)(nil)

func newSupervisor(env supervisorEnv) *supervisor {
	return &supervisor{supervisorEnv: env, kick: make(chan struct{}, 1), units: map[slot.Slot]*unit{},
		idle: map[slot.Slot]func(slot.Slot, []table.Gone){}, ended: make(chan int, 1)}
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

// Flights implements controllers.Keeper: processes that were asked to exit or killed.
func (s *supervisor) Flights(older time.Duration) (out []gate.Flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first, u := range s.units {
		if since := time.Since(u.stopping); u.process != nil && !u.stopping.IsZero() && since >= older {
			out = append(out, gate.Flight{Key: gate.Key{Queue: queue, Name: u.line.args[0]}, Slot: first, For: since})
		}
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

// forward sends a signal to all processes.
func (s *supervisor) forward(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		if u.process != nil {
			u.process.signal(sig)
		}
	}
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
	for ctx.Err() == nil {
		s.look()
		select {
		case <-tick.C:
		case <-s.kick:
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
		if !held.Has(n) && s.given(n) {
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
	return s.leaving || u == nil || u.process == nil || !u.stopping.IsZero() || time.Since(u.began) >= s.MinUptime
}

// reap notices that a process has exited.
func (s *supervisor) reap(u *unit) {
	if u.process == nil {
		return
	}
	select {
	case <-u.process.done:
	default:
		return
	}
	s.Log.Info("The command has exited", "code", u.process.code, "slots", u.slots.String())
	if u.stopping.IsZero() {
		select {
		case s.ended <- u.process.code:
		default:
		}
		s.leaving = true // it is not started again here
	}
	u.process, u.slots, u.stopping, u.killed = nil, slot.Set{}, time.Time{}, false
}

// settle starts or stops the process of a unit so that it has the slots of set.
func (s *supervisor) settle(u *unit, set slot.Set, late bool) {
	want := set
	for n := range s.idle {
		if s.given(n) {
			want.Remove(n)
		}
	}
	settling := !s.Separate && time.Since(s.changed) < settleTime
	switch {
	case u.process == nil && (late || s.leaving || want.Empty() || settling):
		return
	case u.process == nil:
		l, ok, err := s.Line(want)
		if err != nil {
			s.Log.Error(err, "Cannot fill in the command's arguments", "slots", want.String())
		} else if ok {
			s.start(u, want, l)
		}
		return
	case !u.stopping.IsZero():
		if time.Since(u.stopping) >= s.StopTimeout {
			s.kill(u, "it did not exit in time")
		}
		return
	}
	if lost := u.slots.Minus(want); lost.Empty() {
		if l, ok, err := s.Line(want); err != nil || ok && l.equal(u.line) && want == u.slots || settling {
			return
		}
	}
	s.Log.Info("Asking the command to exit", "slots", u.slots.String(), "next", want.String())
	u.stopping = time.Now()
	u.process.signal(syscall.SIGTERM)
}

func (s *supervisor) start(u *unit, set slot.Set, l line) {
	s.Log.Info("Starting the command", "slots", set.String(), "args", l.args)
	p, err := start(l, s.Out, s.Err)
	if err != nil {
		s.Log.Error(err, "Cannot start the command")
		select {
		case s.ended <- 127:
		default:
		}
		s.leaving = true
		return
	}
	s.starts++
	u.process, u.slots, u.line, u.began = p, set, l, time.Now()
}

func (s *supervisor) kill(u *unit, why string) {
	if !u.killed {
		s.Log.Info("Killing the command", "cause", why, "slots", u.slots.String())
	}
	if u.killed = true; u.stopping.IsZero() {
		u.stopping = time.Now()
	}
	u.process.signal(syscall.SIGKILL)
}
