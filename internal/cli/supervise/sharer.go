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
	// closeGrace is how long a program may go on after it has closed its connection.
	closeGrace = 5 * time.Second
	// pollPeriod is how often Warm and Load check for answers.
	pollPeriod = 20 * time.Millisecond
	// unansweredPeriod is how long a question is open before it is logged, and how often.
	unansweredPeriod = time.Minute
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

// sharer runs one process, which changes its share while it runs: it gets a message about each change of a slot. A slot
// is given up when the process has answered that it has drained it, or has exited.
type sharer struct {
	processes
	env   sharerEnv
	slots map[slot.Slot]*shared
	seq   uint64 // of the last question
	// starts is the number of the process. connected is true if it has connected, and first closed once one has.
	starts    int
	connected bool
	first     chan struct{}
	// out are messages that are to be sent. dated is true if the deadline has changed since it was last sent.
	out   []byte
	dated bool
	// outgoing is signaled when there is something to send.
	outgoing chan struct{}
	// closedAt is when the process closed its connection, or 0.
	closedAt time.Duration
	// logged is when unanswered questions were last logged.
	logged time.Duration
}

// shared is a slot of a sharer.
type shared struct {
	// want is the state that the member wants: warm, load, open, drain or shut. last is the last of these messages to the
	// present process, or empty; seq is its number, and sent the time. answered is true if the process has answered it.
	want, last string
	seq        uint64
	sent       time.Duration
	answered   bool
	epoch      uint64
	// gone are deletions for the next owner: those that the former one left, and then those that the process leaves.
	gone []deletion
}

// loaded reports whether the process has the slot's objects.
func (s *shared) loaded() bool {
	return s.last == msgLoad && s.answered || s.last == msgOpen || s.last == msgDrain
}

var _ controllers.Keeper = (*sharer)(nil)

func newSharer(env sharerEnv) *sharer {
	s := &sharer{processes: newProcesses(env.processesEnv), env: env, slots: map[slot.Slot]*shared{},
		first: make(chan struct{}), outgoing: make(chan struct{}, 1)}
	s.units[0] = &unit{}
	return s
}

// Warm implements controllers.Keeper.
func (s *sharer) Warm(ctx context.Context, set slot.Set) error {
	return s.await(ctx, set, func(_ slot.Slot, of *shared) {
		if of.want == msgShut {
			of.want = msgWarm
		}
	}, func(of *shared) bool { return of.last == msgWarm && of.answered || of.loaded() })
}

// Load implements controllers.Keeper.
func (s *sharer) Load(ctx context.Context, set slot.Set, _ bool, gone []table.Gone) error {
	left := map[slot.Slot][]deletion{}
	for _, g := range gone {
		left[g.Slot] = append(left[g.Slot], deletion{Kind: g.Kind, Namespace: g.Namespace, Name: g.Name})
	}
	return s.await(ctx, set, func(n slot.Slot, of *shared) {
		if of.want == msgOpen {
			return // this call is late
		}
		of.want, of.gone = msgLoad, left[n]
		of.last, of.answered = "", false // another member may have worked since it was loaded
	}, (*shared).loaded)
}

// await changes the wanted states of slots, and waits until is returns true for each. It does not wait for slots that
// are shut.
func (s *sharer) await(
	ctx context.Context, set slot.Set, change func(slot.Slot, *shared), is func(*shared) bool,
) error {
	s.mu.Lock()
	for _, n := range set.Slots() {
		change(n, s.state(n))
		s.update(n)
	}
	s.mu.Unlock()
	for !s.ready(set, is) {
		if err := s.env.Sleep(ctx, pollPeriod); err != nil {
			return err
		}
	}
	return nil
}

// ready reports whether is returns true for all slots that are not shut.
func (s *sharer) ready(set slot.Set, is func(*shared) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(set.Slots(), func(n slot.Slot) bool {
		of := s.slots[n]
		return of != nil && of.want != msgShut && !is(of)
	})
}

// state returns the state of a slot.
func (s *sharer) state(n slot.Slot) *shared {
	if s.slots[n] == nil {
		s.slots[n] = &shared{want: msgShut}
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
		of := s.state(n)
		of.want, of.epoch = msgOpen, epoch
		s.update(n)
	}
}

// Drain implements controllers.Keeper.
func (s *sharer) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain(set, idle)
	for _, n := range set.Slots() {
		s.state(n).want = msgDrain
		s.update(n)
	}
}

// Shut implements controllers.Keeper.
func (s *sharer) Shut(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut(set)
	for _, n := range set.Slots() {
		if of := s.slots[n]; of != nil {
			of.want = msgShut
			s.update(n)
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
		if since := s.Now() - of.sent; of.last == msgDrain && !of.answered && since >= older {
			key := gate.Key{Queue: controllers.ProgramQueue, Name: s.env.Line.args[0]}
			out = append(out, gate.Flight{Key: key, Slot: n, For: since})
		}
	}
	return out
}

// update sends the process the next message about a slot, if one is due.
func (s *sharer) update(n slot.Slot) {
	u, of := s.units[0], s.slots[n]
	if u.process == nil || u.stopping {
		return
	}
	switch {
	case of.want == msgShut:
		if of.last != "" {
			s.send(n, of, msgShut)
		}
	case of.want == msgDrain:
		if u.slots.Has(n) && of.last != msgDrain {
			s.send(n, of, msgDrain)
		}
	case of.want == msgOpen && of.loaded():
		if of.last != msgOpen && s.Late() < s.deadline && !s.waits(n) {
			u.slots.Add(n)
			s.send(n, of, msgOpen)
		}
	case of.want == msgWarm:
		if of.last == "" {
			s.send(n, of, msgWarm)
		}
	case of.last != msgLoad:
		s.send(n, of, msgLoad)
	}
}

// send sends a message about a slot.
func (s *sharer) send(n slot.Slot, of *shared, what string) {
	m := message{}
	if what == msgWarm || what == msgLoad {
		m = s.env.About(n)
	}
	if m.Type, m.Slot = what, &n; answerTo[what] != "" {
		s.seq++
		m.Seq = s.seq
	}
	switch what {
	case msgLoad:
		m.Gone = of.gone
	case msgOpen:
		m.Epoch = of.epoch
	}
	of.last, of.seq, of.answered, of.sent = what, m.Seq, false, s.Now()
	s.out = append(s.out, encode(m)...)
	s.flush()
}

// flush wakes the goroutine that sends messages.
func (s *sharer) flush() { notify(s.outgoing) }

// connect is called when a process connects. It returns the number of the process.
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

// pending returns and clears the messages for a process. ok is false if another one was started.
func (s *sharer) pending(number int) (out []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.starts {
		return nil, false
	}
	if out = s.out; s.dated && s.deadline > s.Late() {
		out = append(out, encode(message{Type: msgDeadline, Monotonic: s.env.Monotonic(s.deadline)})...)
	}
	s.out, s.dated = nil, false
	return out, true
}

// receive handles an answer of a process. It returns an error if the process breaks the protocol.
func (s *sharer) receive(number int, line []byte) error {
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
	if a.Type != answerTo[of.last] {
		return fmt.Errorf("%.100q: the answer to %s is %s", line, of.last, answerTo[of.last])
	}
	of.answered = true
	if a.Type == answerTo[msgDrain] {
		for _, g := range a.Gone {
			if g.Name == "" || !slices.Contains(s.Kinds(), g.Kind) {
				return fmt.Errorf("%.200q: a deletion has a name, and one of the kinds %v", line, s.Kinds())
			}
		}
		of.gone = a.Gone
		s.units[0].slots.Remove(a.Slot)
	}
	s.update(a.Slot)
	s.wake()
	return nil
}

// disconnect is called when a process has closed its connection, with an error if it has broken the protocol. Such a
// process is ended, and the member with it.
func (s *sharer) disconnect(number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch u := s.units[0]; {
	case number != s.starts || u.process == nil || u.stopping:
	case err == nil:
		s.closedAt = s.Now()
	default:
		s.fail(u, err)
	}
}

// fail ends a process and the member.
func (s *sharer) fail(u *unit, err error) {
	s.Log.Error(err, "The command has broken the protocol, so it is ended")
	s.end(1)
	u.unclean = true
	s.terminate(u)
}

// run starts and stops the process until ctx ends.
func (s *sharer) run(ctx context.Context) { s.loop(ctx, s.look) }

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
		s.killOverdue(u)
	case s.closedAt > 0 && s.Now()-s.closedAt >= closeGrace:
		s.fail(u, fmt.Errorf("it closed its connection %v ago and still runs", closeGrace))
	case s.leaving && !u.slots.Empty() && s.Now()-s.leftAt >= s.StopTimeout:
		s.Log.Info("Asking the command to exit, because it has not drained all slots in time", "slots", u.slots.String())
		u.unclean = true // a write may be under way, whether it exits at once or not
		s.terminate(u)
	}
	for _, n := range slices.Sorted(maps.Keys(s.slots)) { // in order, so that a life of the simulator can be repeated
		s.update(n)
	}
	s.release(func(slot.Slot) bool { return true }, s.deletionsIn)
	s.logUnanswered()
}

// logUnanswered logs the questions that have been open for long.
func (s *sharer) logUnanswered() {
	if s.Now()-s.logged < unansweredPeriod {
		return
	}
	open := map[string]*slot.Set{}
	for n, of := range s.slots {
		if answerTo[of.last] != "" && !of.answered && s.Now()-of.sent >= unansweredPeriod {
			if open[of.last] == nil {
				open[of.last] = &slot.Set{}
			}
			open[of.last].Add(n)
		}
	}
	for question, set := range open {
		s.logged = s.Now()
		s.Log.Error(nil, "The command does not answer", "question", question, "slots", set.String(), "connected", s.connected)
	}
}

// deletionsIn returns the deletions in a slot for its next owner.
func (s *sharer) deletionsIn(n slot.Slot) (left []table.Gone) {
	for _, g := range s.state(n).gone {
		left = append(left, table.Gone{Slot: n, Kind: g.Kind, Namespace: g.Namespace, Name: g.Name})
	}
	return left
}

// start starts the process, without slots.
func (s *sharer) start(u *unit) {
	s.Log.Info("Starting the command", "args", s.env.Line.args)
	s.starts++
	u.process, u.line, u.began = s.Start(s.env.Line), s.env.Line, s.Now()
	s.connected, s.out, s.dated, s.closedAt = false, encode(s.env.Hello), true, 0
	for _, of := range s.slots {
		of.last, of.answered = "", false
	}
	s.flush()
}
