package supervise

import (
	"context"
	"maps"
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

// lookTime is how often deadlines are checked, and lineTime how often orphans are reaped, and a command line is
// computed that only a change of namespaces can have changed.
const lookTime, lineTime = 100 * time.Millisecond, 2 * time.Second

// processesEnv is the environment of processes.
type processesEnv struct {
	// Kinds are the kinds of the objects that the command works on.
	Kinds []string
	// StopTimeout is how long a process may take to exit after SIGTERM. Then its group gets SIGKILL.
	StopTimeout time.Duration
	// FenceDelay is how long slots wait after a process that had them was killed or exited by itself: the API server may
	// still work on its last write.
	FenceDelay time.Duration
	// Start starts a process.
	Start func(line) program
	// Late returns the time on the deadline clock, and Now the process's monotonic time.
	Late, Now func() time.Duration
	Log       logr.Logger
}

// program is a process with its process group.
type program interface {
	// pid is 0 until the process has been started.
	pid() int
	// signal sends a signal to the whole group.
	signal(s syscall.Signal)
	// exited is closed when the process has exited, and done when its whole group has.
	exited() <-chan struct{}
	done() <-chan struct{}
	// code is the exit code once the process has exited.
	code() int
}

// processes are the processes of a member. A slot is given up when no process has it.
type processes struct {
	processesEnv
	kick chan struct{}

	mu       sync.Mutex
	open     slot.Set
	idle     map[slot.Slot]func(slot.Slot, []table.Gone) // of slots that are being drained
	deadline time.Duration
	// leaving is true if the member leaves, since leftAt.
	leaving bool
	leftAt  time.Duration
	units   map[slot.Slot]*unit
	quiet   map[slot.Slot]time.Duration // until when slots wait for FenceDelay
	// ended is the exit code of a process that exited by itself, once one has.
	ended chan int
}

// unit is a process with its slots.
type unit struct {
	process program  // nil while none runs
	slots   slot.Set // those that the process may work on
	line    line     // of process
	began   time.Duration
	lined   time.Duration // when a command line was last computed
	// stopping is true if the process was asked to exit, or killed, first at stopped.
	stopping bool
	stopped  time.Duration
	// unclean is true if the process was killed, or exited without being asked to.
	unclean bool
}

func newProcesses(env processesEnv) processes {
	return processes{processesEnv: env, kick: make(chan struct{}, 1), units: map[slot.Slot]*unit{},
		quiet: map[slot.Slot]time.Duration{}, idle: map[slot.Slot]func(slot.Slot, []table.Gone){},
		ended: make(chan int, 1)}
}

// Kinds implements controllers.Keeper.
func (p *processes) Kinds() []string { return p.processesEnv.Kinds }

// Address implements controllers.Keeper.
func (p *processes) Address() string { return "" }

// CatchUp implements controllers.Keeper.
func (p *processes) CatchUp(context.Context, slot.Set) error { return nil }

// drain notes that slots are to be given up.
func (p *processes) drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	for _, n := range set.Slots() {
		p.idle[n] = idle
	}
	p.wake()
}

// shut kills the processes of slots that other members may work on.
func (p *processes) shut(set slot.Set) {
	p.open = p.open.Minus(set)
	for _, n := range set.Slots() {
		delete(p.idle, n)
	}
	for _, u := range p.units {
		if lost := u.slots.Intersect(set); u.process != nil && !lost.Empty() {
			p.kill(u, "another member may have the slots")
		}
	}
	p.wake()
}

// Flights implements controllers.Keeper: processes that were asked to exit or killed, each with a slot that waits for
// it.
func (p *processes) Flights(older time.Duration) (out []gate.Flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.units {
		since := p.Now() - u.stopped
		if u.process == nil || !u.stopping || since < older || u.slots.Empty() {
			continue
		}
		key := gate.Key{Queue: controllers.ProgramQueue, Name: u.line.args[0]}
		f := gate.Flight{Key: key, Slot: u.slots.Slots()[0], For: since}
		for _, n := range u.slots.Slots() {
			if p.idle[n] != nil {
				f.Slot = n
				break
			}
		}
		out = append(out, f)
	}
	return out
}

// leave announces that the member leaves.
func (p *processes) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startLeaving()
	p.wake()
}

// exits returns the exit code of a process that has exited by itself.
func (p *processes) exits() <-chan int { return p.ended }

func (p *processes) startLeaving() {
	if !p.leaving {
		p.leaving, p.leftAt = true, p.Now()
	}
}

// running returns the processes.
func (p *processes) running() (out []program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.units {
		if u.process != nil {
			out = append(out, u.process)
		}
	}
	return out
}

func (p *processes) wake() { notify(p.kick) }

// notify wakes the goroutine that waits for c, at once or when it waits the next time.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loop calls look until ctx ends. Then it stops the processes that are left, and waits for them.
func (p *processes) loop(ctx context.Context, look func()) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	orphans := time.NewTicker(lineTime)
	defer orphans.Stop()
	for ctx.Err() == nil {
		look()
		select {
		case <-tick.C:
		case <-p.kick:
		case <-orphans.C:
			reapOrphans(p.running())
		case <-ctx.Done():
		}
	}
	for _, left := range p.running() {
		p.stop(left)
	}
}

// stop ends a process when the member has ended.
func (p *processes) stop(left program) {
	p.mu.Lock()
	grace := p.StopTimeout
	for _, u := range p.units {
		if u.process == left && !u.slots.Empty() {
			p.kill(u, "this member has ended")
			grace = 0
		}
	}
	p.mu.Unlock()
	left.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-left.done():
	case <-timer.C:
		left.signal(syscall.SIGKILL)
		<-left.done()
	}
}

// release gives up the slots that are being drained, that no process has, and for which ready returns true. left
// returns the deletions in a slot for its next owner.
func (p *processes) release(ready func(slot.Slot) bool, left func(slot.Slot) []table.Gone) {
	held := slot.Set{}
	for _, u := range p.units {
		if u.process != nil {
			held = held.Union(u.slots)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.idle)) {
		if !held.Has(n) && ready(n) && !p.waits(n) {
			idle := p.idle[n]
			delete(p.idle, n)
			p.open.Remove(n)
			idle(n, left(n))
		}
	}
}

// waits reports whether a slot waits for FenceDelay.
func (p *processes) waits(n slot.Slot) bool {
	until, quiet := p.quiet[n]
	if quiet && p.Now() > until {
		delete(p.quiet, n)
		return false
	}
	return quiet
}

// reap notices that a process has exited, and that its whole group has. If it was not asked to, the member leaves, and
// the rest of its group is asked to exit.
func (p *processes) reap(u *unit) {
	if u.process == nil || !closed(u.process.exited()) {
		return
	}
	if !u.stopping {
		p.Log.Info("The command has exited by itself", "code", u.process.code(), "slots", u.slots.String())
		p.end(u.process.code())
		p.terminate(u)
		u.unclean = true
	}
	if !closed(u.process.done()) {
		return
	}
	p.Log.Info("The command and its process group have exited", "code", u.process.code(), "slots", u.slots.String())
	if u.unclean {
		for _, n := range u.slots.Slots() {
			p.quiet[n] = p.Now() + p.FenceDelay
		}
	}
	*u = unit{}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// end has the member leave. The command is not started again here.
func (p *processes) end(code int) {
	p.startLeaving()
	select {
	case p.ended <- code:
	default:
	}
}

// terminate sends SIGTERM.
func (p *processes) terminate(u *unit) {
	u.stopping, u.stopped = true, p.Now()
	u.process.signal(syscall.SIGTERM)
}

// killOverdue kills a process that has not exited within StopTimeout of SIGTERM.
func (p *processes) killOverdue(u *unit) {
	if p.Now()-u.stopped >= p.StopTimeout {
		p.kill(u, "it did not exit in time")
	}
}

func (p *processes) kill(u *unit, why string) {
	if closed(u.process.done()) {
		return
	}
	u.process.signal(syscall.SIGKILL) // first, because writing a log may block
	if !u.unclean {
		p.Log.Info("Killed the command", "cause", why, "slots", u.slots.String())
	}
	if u.unclean = true; !u.stopping {
		u.stopping, u.stopped = true, p.Now()
	}
}
