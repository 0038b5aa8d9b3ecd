package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// goodbyeTime is how long a program may go on after it has closed its connection.
	goodbyeTime = 5 * time.Second
	// answerTime is how often it is looked whether slots are warm or loaded.
	answerTime = 20 * time.Millisecond
	// muteTime is how long a question is open before that is logged, each time.
	muteTime = time.Minute
)

// sharerEnv is the environment of a sharer.
type sharerEnv struct {
	processesEnv
	// Line is the command line.
	Line line
	// Hello is the first message, and About describes a slot.
	Hello hello
	About func(slot.Slot) message
	// Monotonic converts a time on the deadline clock to seconds on CLOCK_MONOTONIC.
	Monotonic func(late time.Duration) float64
	// Sleep returns after a time, or an error if ctx ends first.
	Sleep func(context.Context, time.Duration) error
}

// sharer runs one process, which changes its share while it runs. It tells the process by messages what becomes of each
// slot. A slot is given up when the process has answered that it has drained it, or has exited.
type sharer struct {
	processes
	env   sharerEnv
	slots map[slot.Slot]*shared
	seq   uint64 // of the last question
	// starts is the number of the process. connected is true if it has connected, and first closed once one has.
	starts    int
	connected bool
	first     chan struct{}
	// out are messages that the process has not been sent. dated is true if the deadline has changed since the last one.
	out   []byte
	dated bool
	// sent is signaled when there is something in out.
	sent chan struct{}
	// silent is when the process closed its connection, or 0.
	silent time.Duration
	// scolded is when it was last logged that it does not answer.
	scolded time.Duration
}

// shared is a slot of a sharer.
type shared struct {
	// want is what the member wants of the slot: warm, load, open, drain or shut. told is the last message of these to the
	// present process, or empty, and seq its number. answered is true if the process has answered it.
	want, told string
	seq        uint64
	answered   bool
	asked      time.Duration // when told was sent
	epoch      uint64
	// gone are deletions for the next owner: those that the former one left, and then those that the process leaves.
	gone []deletion
}

// loaded reports whether the process has the slot's objects.
func (s *shared) loaded() bool {
	return s.told == askLoad && s.answered || s.told == tellOpen || s.told == askDrain
}

var _ controllers.Keeper = (*sharer)(nil)

func newSharer(env sharerEnv) *sharer {
	s := &sharer{processes: newProcesses(env.processesEnv), env: env, slots: map[slot.Slot]*shared{},
		first: make(chan struct{}), sent: make(chan struct{}, 1)}
	s.units[0] = &unit{}
	return s
}

// Warm implements controllers.Keeper.
func (s *sharer) Warm(ctx context.Context, set slot.Set) error {
	return s.await(ctx, set, func(_ slot.Slot, of *shared) {
		if of.want == tellShut {
			of.want = askWarm
		}
	}, func(of *shared) bool { return of.told == askWarm && of.answered || of.loaded() })
}

// Load implements controllers.Keeper.
func (s *sharer) Load(ctx context.Context, set slot.Set, _ bool, gone []table.Gone) error {
	left := map[slot.Slot][]deletion{}
	for _, g := range gone {
		left[g.Slot] = append(left[g.Slot], deletion{Kind: g.Kind, Namespace: g.Namespace, Name: g.Name})
	}
	return s.await(ctx, set, func(n slot.Slot, of *shared) {
		if of.want == tellOpen {
			return // this call is late
		}
		of.want, of.gone = askLoad, left[n]
		of.told, of.answered = "", false // another member may have worked since it was loaded
	}, (*shared).loaded)
}

// await changes what is wanted of slots, and waits until each is ready. It does not wait for slots that are shut.
func (s *sharer) await(
	ctx context.Context, set slot.Set, want func(slot.Slot, *shared), ready func(*shared) bool,
) error {
	s.mu.Lock()
	for _, n := range set.Slots() {
		want(n, s.of(n))
		s.tell(n)
	}
	s.mu.Unlock()
	for !s.all(set, ready) {
		if err := s.env.Sleep(ctx, answerTime); err != nil {
			return err
		}
	}
	return nil
}

// all reports whether all slots are ready, but for those that are shut.
func (s *sharer) all(set slot.Set, ready func(*shared) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(set.Slots(), func(n slot.Slot) bool {
		of := s.slots[n]
		return of != nil && of.want != tellShut && !ready(of)
	})
}

// of returns a slot.
func (s *sharer) of(n slot.Slot) *shared {
	if s.slots[n] == nil {
		s.slots[n] = &shared{want: tellShut}
	}
	return s.slots[n]
}

// Open implements controllers.Keeper.
func (s *sharer) Open(set slot.Set, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open.Union(set)
	for _, n := range set.Slots() {
		delete(s.idle, n)
		of := s.of(n)
		of.want, of.epoch = tellOpen, epoch
		s.tell(n)
	}
}

// Drain implements controllers.Keeper.
func (s *sharer) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain(set, idle)
	for _, n := range set.Slots() {
		s.of(n).want = askDrain
		s.tell(n)
	}
}

// Shut implements controllers.Keeper.
func (s *sharer) Shut(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut(set)
	for _, n := range set.Slots() {
		if of := s.slots[n]; of != nil {
			of.want = tellShut
			s.tell(n)
			delete(s.slots, n)
		}
	}
}

// SetDeadline implements controllers.Keeper.
func (s *sharer) SetDeadline(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	s.dated = true
	s.flush()
}

// Flights implements controllers.Keeper: slots that the process is to drain, and a process that is to exit.
func (s *sharer) Flights(older time.Duration) []gate.Flight {
	out := s.processes.Flights(older)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[0].stopping {
		return out
	}
	for n, of := range s.slots {
		if since := s.Now() - of.asked; of.told == askDrain && !of.answered && since >= older {
			key := gate.Key{Queue: controllers.ProgramQueue, Name: s.env.Line.args[0]}
			out = append(out, gate.Flight{Key: key, Slot: n, For: since})
		}
	}
	return out
}

// tell sends the process what it has to know of a slot.
func (s *sharer) tell(n slot.Slot) {
	u, of := s.units[0], s.slots[n]
	if u.process == nil || u.stopping {
		return
	}
	switch {
	case of.want == tellShut:
		if of.told != "" {
			s.send(n, of, tellShut)
		}
	case of.want == askDrain:
		if u.slots.Has(n) && of.told != askDrain {
			s.send(n, of, askDrain)
		}
	case of.want == tellOpen && of.loaded():
		if of.told != tellOpen && s.Late() < s.deadline && !s.waits(n) {
			u.slots.Add(n)
			s.send(n, of, tellOpen)
		}
	case of.want == askWarm:
		if of.told == "" {
			s.send(n, of, askWarm)
		}
	case of.told != askLoad:
		s.send(n, of, askLoad)
	}
}

// send sends a message about a slot.
func (s *sharer) send(n slot.Slot, of *shared, what string) {
	m := message{}
	if what == askWarm || what == askLoad {
		m = s.env.About(n)
	}
	if m.Type, m.Slot = what, &n; answerTo[what] != "" {
		s.seq++
		m.Seq = s.seq
	}
	switch what {
	case askLoad:
		m.Gone = of.gone
	case tellOpen:
		m.Epoch = of.epoch
	}
	of.told, of.seq, of.answered, of.asked = what, m.Seq, false, s.Now()
	s.out = append(s.out, encode(m)...)
	s.flush()
}

// flush has the messages sent.
func (s *sharer) flush() {
	select {
	case s.sent <- struct{}{}:
	default:
	}
}

// connect notes that the process with this number has connected. It returns an error if it has before.
func (s *sharer) connect() (number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected || s.units[0].process == nil {
		return 0, errors.New("the process has connected before, or has ended: it may connect once")
	}
	if s.connected = true; !closed(s.first) {
		close(s.first)
	}
	return s.starts, nil
}

// take returns what is to be sent to a process. ok is false if another one was started.
func (s *sharer) take(number int) (out []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.starts {
		return nil, false
	}
	if out = s.out; s.dated && s.deadline > s.Late() {
		out = append(out, encode(message{Type: tellDeadline, Monotonic: s.env.Monotonic(s.deadline)})...)
	}
	s.out, s.dated = nil, false
	return out, true
}

// heard takes an answer of a process. It returns an error if the process does not keep to the protocol.
func (s *sharer) heard(number int, line []byte) error {
	a, err := decode(line)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.starts {
		return nil
	}
	if a.Seq == 0 || a.Seq > s.seq {
		return fmt.Errorf("%.100q: there was no question with this seq", line)
	}
	of := s.slots[a.Slot]
	if of == nil || of.seq != a.Seq || of.answered {
		return nil // the question was overtaken by another message
	}
	if a.Type != answerTo[of.told] {
		return fmt.Errorf("%.100q: the answer to %s is %s", line, of.told, answerTo[of.told])
	}
	of.answered = true
	if a.Type == answerTo[askDrain] {
		for _, g := range a.Gone {
			if g.Name == "" || !slices.Contains(s.Kinds(), g.Kind) {
				return fmt.Errorf("%.200q: a deletion has a name, and one of the kinds %v", line, s.Kinds())
			}
		}
		of.gone = a.Gone
		s.units[0].slots.Remove(a.Slot)
	}
	s.tell(a.Slot)
	s.wake()
	return nil
}

// disconnect notes that a process has closed its connection, or that it does not keep to the protocol. Then it is
// ended, and the member with it.
func (s *sharer) disconnect(number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch u := s.units[0]; {
	case number != s.starts || u.process == nil || u.stopping:
	case err == nil:
		s.silent = s.Now()
	default:
		s.fail(u, err)
	}
}

// fail ends a process and the member.
func (s *sharer) fail(u *unit, err error) {
	s.Log.Error(err, "The command does not keep to the protocol, so it is ended")
	s.end(1)
	u.unclean = true
	s.ask(u)
}

// run starts and stops the process until ctx ends.
func (s *sharer) run(ctx context.Context) { s.tend(ctx, s.look) }

// look does what is due.
func (s *sharer) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.units[0]
	if u.process != nil && s.Late() >= s.deadline && !u.slots.Empty() {
		s.kill(u, "the Lease was not renewed in time")
		u.stopping, u.unclean = true, true // also if it has ended itself for that reason
	}
	s.reap(u)
	switch {
	case u.process == nil:
		if !s.leaving {
			s.start(u)
		}
	case u.stopping:
		s.press(u)
	case s.silent > 0 && s.Now()-s.silent >= goodbyeTime:
		s.fail(u, fmt.Errorf("it closed its connection %v ago and still runs", goodbyeTime))
	case s.leaving && !u.slots.Empty() && s.Now()-s.leftAt >= s.StopTimeout:
		s.Log.Info("Asking the command to exit, because it has not drained all slots in time", "slots", u.slots.String())
		u.unclean = true // a write may be under way, whether it exits at once or not
		s.ask(u)
	}
	for _, n := range slices.Sorted(maps.Keys(s.slots)) { // in order, so that a life of the simulator can be repeated
		s.tell(n)
	}
	s.giveUp(func(slot.Slot) bool { return true }, s.leftIn)
	s.scold()
}

// scold logs questions that the process has not answered for long.
func (s *sharer) scold() {
	open := map[string]*slot.Set{}
	for n, of := range s.slots {
		if answerTo[of.told] != "" && !of.answered && s.Now()-of.asked >= muteTime && s.Now()-s.scolded >= muteTime {
			if open[of.told] == nil {
				open[of.told] = &slot.Set{}
			}
			open[of.told].Add(n)
		}
	}
	for question, set := range open {
		s.scolded = s.Now()
		s.Log.Error(nil, "The command does not answer", "question", question, "slots", set.String(), "connected", s.connected)
	}
}

// leftIn returns the deletions in a slot for its next owner.
func (s *sharer) leftIn(n slot.Slot) (left []table.Gone) {
	for _, g := range s.of(n).gone {
		left = append(left, table.Gone{Slot: n, Kind: g.Kind, Namespace: g.Namespace, Name: g.Name})
	}
	return left
}

// start starts the process, which knows of no slot.
func (s *sharer) start(u *unit) {
	s.Log.Info("Starting the command", "args", s.env.Line.args)
	s.starts++
	u.process, u.line, u.began = s.Start(s.env.Line), s.env.Line, s.Now()
	s.connected, s.out, s.dated, s.silent = false, encode(s.env.Hello), true, 0
	for _, of := range s.slots {
		of.told, of.answered = "", false
	}
	s.flush()
}
