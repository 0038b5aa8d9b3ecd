package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/sim"
)

// TestLives lives through the simulator's lives with members that run a program each. Some programs are slow, silent,
// lie or die. No two may work on one slot, and once all faults are over each slot must be worked on. SIM_SEED=<n> repeats
// one, with a trace.
func TestLives(t *testing.T) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		l := newLife(seed, func(line string) { t.Log(line) })
		for _, v := range l.run().Violations() {
			t.Errorf("seed %d: %v", seed, v)
		}
		return
	}
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	if text := os.Getenv("SIM_SEEDS"); text != "" {
		var err error
		seeds, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	total := map[string]int{}
	for seed := uint64(1); seed <= seeds; seed++ {
		l := newLife(seed, nil)
		for _, v := range l.run().Violations() {
			t.Errorf("seed %d: %v\n\trepeat: SIM_SEED=%d go test -run TestLives ./internal/cli/supervise", seed, v, seed)
		}
		if early := l.deeds["early"]; early > 0 {
			t.Errorf("seed %d: %d slots opened that were not loaded", seed, early)
		}
		for what, n := range l.deeds {
			total[what] += n
		}
	}
	t.Log(total)
	for _, what := range []string{"drained", "killed", "died", "silent", "lied", "late"} {
		if total[what] == 0 {
			t.Errorf("%s: never in all seeds", what)
		}
	}
}

// A seed repeats exactly, or no failure could be looked at.
func TestLivesRepeat(t *testing.T) {
	var lives [2]uint64
	for i := range lives {
		h := fnv.New64a()
		newLife(7, func(line string) { _, _ = h.Write([]byte(line)) }).run()
		lives[i] = h.Sum64()
	}
	if lives[0] != lives[1] {
		t.Error("the same seed made two different lives")
	}
}

// life is a world in which each member's process has a sharer.
type life struct {
	seed  uint64
	trace func(string)
	rng   *rand.Rand
	// hosts are the processes that have a sharer, by their replica.
	hosts map[*sim.Replica]*host
	// deeds counts what programs did; "early" are slots that were opened before the program had loaded them.
	deeds map[string]int
	// bad is how probable it is that a program does something bad, each time that it can.
	bad float64
}

func newLife(seed uint64, trace func(string)) *life {
	l := &life{seed: seed, trace: trace, hosts: map[*sim.Replica]*host{}, deeds: map[string]int{},
		rng: rand.New(rand.NewPCG(seed, 12))} // must be repeatable
	l.bad = []float64{0, 0.01, 0.05}[l.rng.IntN(3)]
	return l
}

func (l *life) run() *sim.World {
	return sim.RunLife(l.seed, sim.Options{Trace: l.trace, Idle: l.idle, Keep: func(n *sim.Node, rejoins bool) controllers.Keeper {
		h := l.hosts[n.Replica]
		if h == nil || !rejoins {
			h = &host{l: l, writing: map[slot.Slot]time.Duration{}}
			h.n, h.sharer = n, newSharer(h.env())
			l.hosts[n.Replica] = h
			h.lives(n.World())
		}
		h.n = n
		h.SetDeadline(0) // of the former incarnation, whose clock was another
		return h
	}})
}

// idle names an open slot of a member whose program does not work on it.
func (l *life) idle(n *sim.Node) string {
	h := l.hosts[n.Replica]
	for _, s := range h.open.Slots() {
		if h.program == nil || !h.program.works(s) {
			return fmt.Sprintf("the program of %s does not work on slot %d", n.ID, s)
		}
	}
	return ""
}

func (l *life) between(low, high time.Duration) time.Duration {
	return low + time.Duration(l.rng.Int64N(int64(high-low)))
}

// lifeFence is the fence delay, which the last write of a program does not outlast.
const lifeFence = 3 * time.Second

// host is a process of `rota run`, and outlives the incarnations of its member.
type host struct {
	*sharer
	l       *life
	n       *sim.Node
	program *liveProgram // the present one
	// writing is until when a write by a program that has ended may be under way, by slot.
	writing map[slot.Slot]time.Duration
	ending  bool // its member has to leave, since the program has ended
}

func (h *host) env() sharerEnv {
	return sharerEnv{
		processesEnv: processesEnv{
			Kinds: []string{"Widget"}, StopTimeout: 5 * time.Second, FenceDelay: lifeFence, Log: logr.Discard(),
			Late: func() time.Duration { return h.n.Late() }, Now: func() time.Duration { return h.n.World().Now() },
			Start: func(line) program {
				h.program = &liveProgram{h: h, over: make(chan struct{}), slots: map[slot.Slot]*liveSlot{},
					stubborn: h.l.rng.IntN(3) == 0, careless: h.l.rng.IntN(3) == 0}
				return h.program
			},
		},
		Line: line{args: []string{"program"}}, Hello: hello{Type: "hello"}, About: func(slot.Slot) message { return message{} },
		Monotonic: func(late time.Duration) float64 { return (h.n.World().Now() + h.n.Left(late)).Seconds() },
		Sleep: func(ctx context.Context, d time.Duration) error {
			if !h.n.Await(ctx, d) {
				return context.Canceled
			}
			return nil
		},
	}
}

// lives has the process do what is due, again and again until it ends, and the program with it.
func (h *host) lives(w *sim.World) {
	w.After(h.l.between(50*time.Millisecond, 200*time.Millisecond), func() {
		if h.n.Dead || h.l.hosts[h.n.Replica] != h {
			if h.program != nil {
				h.program.exit() // the kernel kills it
			}
			return
		}
		h.n.Do(0, func() {
			h.look()
			select {
			case <-h.exits():
				h.ending = true
			default:
			}
			if h.ending {
				h.n.Leave()
			}
			if h.n.Leaving {
				h.leave()
			}
			if p := h.program; p != nil && !closed(p.over) {
				p.reads(w)
			}
		})
		if p := h.program; p != nil && !closed(p.over) {
			p.lives(w)
		}
		h.lives(w)
	})
}

// liveProgram is a program with the clients' manners, and bad ones.
type liveProgram struct {
	h        *host
	over     chan struct{}
	stubborn bool
	// careless: it does not look at its deadline, except while the process that started it stands still. Then only a fence
	// would help.
	careless bool
	number   int // its connection, 0 before it has one
	slots    map[slot.Slot]*liveSlot
	deadline time.Duration
	quiet    time.Duration // until when it answers nothing, in the world's time
	last     answer        // its last one
}

// liveSlot is the state of a slot in a program.
type liveSlot struct {
	load         uint64 // the seq of the last load
	loaded, open bool   // loaded: it has answered that
	drain        uint64
}

func (p *liveProgram) pid() int { return 0 }

func (p *liveProgram) signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		p.h.l.deeds["killed"]++
	}
	if s == syscall.SIGKILL || !p.stubborn {
		p.exit()
	}
}

// exit ends the program. The API server may work on its last writes for a while.
func (p *liveProgram) exit() {
	if closed(p.over) {
		return
	}
	for n := range p.slots {
		if p.works(n) {
			p.h.writing[n] = p.h.n.World().Now() + lifeFence*9/10
		}
	}
	close(p.over)
}

func (p *liveProgram) exited() <-chan struct{} { return p.over }

func (p *liveProgram) done() <-chan struct{} { return p.over }

func (p *liveProgram) code() int { return 0 }

// works reports whether the program may work on a slot.
func (p *liveProgram) works(n slot.Slot) bool {
	of := p.slots[n]
	return of != nil && of.open && !closed(p.over)
}

// lives is what it does by itself, also while the process that started it stands still.
func (p *liveProgram) lives(w *sim.World) {
	l := p.h.l
	for n, of := range p.slots {
		if !of.open {
			continue
		}
		if w.Now() >= p.deadline && (p.h.n.Paused || !p.careless) {
			l.deeds["late"]++
			p.exit()
			return
		}
		for _, other := range l.hosts {
			if other != p.h && other.program != nil && other.program.works(n) || other.writing[n] > w.Now() {
				w.TwoAtWork(n, p.h.n, other.n)
			}
		}
	}
	if w.Over() {
		p.quiet = 0
		return
	}
	switch x := l.rng.Float64() * 20; {
	case x < l.bad/4:
		l.deeds["died"]++
		p.exit()
	case x < l.bad && p.quiet < w.Now():
		l.deeds["silent"]++
		p.quiet = w.Now() + l.between(time.Second, time.Minute)
	}
}

// reads takes what the sharer sends, all at once.
func (p *liveProgram) reads(w *sim.World) {
	if p.number == 0 {
		var err error
		if p.number, err = p.h.connect(); err != nil {
			panic(err)
		}
	}
	if p.quiet > w.Now() {
		return
	}
	out, ok := p.h.pending(p.number)
	if !ok {
		return
	}
	for text := range bytes.Lines(out) {
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			panic(err)
		}
		p.heed(w, m)
	}
}

// heed handles a message.
func (p *liveProgram) heed(w *sim.World, m message) {
	if m.Type == msgDeadline {
		p.deadline = time.Duration(m.Monotonic * float64(time.Second))
	}
	if m.Slot == nil {
		return
	}
	of := p.slots[*m.Slot]
	if of == nil {
		of = &liveSlot{}
		p.slots[*m.Slot] = of
	}
	takes := p.h.l.between(time.Millisecond, 300*time.Millisecond)
	if p.h.l.rng.IntN(50) == 0 && !w.Over() {
		takes = p.h.l.between(time.Second, 30*time.Second)
	}
	switch m.Type {
	case msgWarm, msgLoad:
		if m.Type == msgLoad {
			of.load, of.loaded = m.Seq, false
		}
		w.After(takes, func() {
			of.loaded = of.loaded || of.load == m.Seq
			p.answers(answer{Type: answerTo[m.Type], Slot: *m.Slot, Seq: m.Seq})
		})
	case msgOpen:
		if !of.loaded {
			p.h.l.deeds["early"]++
		}
		of.open, of.drain = true, 0
	case msgDrain:
		of.drain = m.Seq
		w.After(takes, func() {
			if of.drain == m.Seq && of.open && !closed(p.over) && p.slots[*m.Slot] == of {
				of.open, of.drain = false, 0
				p.h.l.deeds["drained"]++
				p.answers(answer{Type: answerTo[msgDrain], Slot: *m.Slot, Seq: m.Seq})
			}
		})
	case msgShut:
		delete(p.slots, *m.Slot)
	}
}

// answers sends an answer. Now and then it is sent twice, or follows a lie.
func (p *liveProgram) answers(a answer) {
	if closed(p.over) {
		return
	}
	all := []answer{a}
	if p.h.l.rng.Float64() < p.h.l.bad && !p.h.n.World().Over() {
		p.h.l.deeds["lied"]++
		switch p.h.l.rng.IntN(3) {
		case 0:
			all = []answer{p.last, a, a} // it repeats an earlier answer
		case 1:
			all = []answer{{Type: answerTo[msgDrain], Slot: a.Slot, Seq: a.Seq + 1000}, a}
		default:
			all = []answer{{Type: "loaded", Slot: a.Slot, Seq: a.Seq + 1}, a}
		}
	}
	p.last = a
	p.h.n.Do(0, func() {
		for _, a := range all {
			if a.Type == "" || closed(p.over) {
				continue
			}
			if err := p.h.receive(p.number, encode(a)); err != nil {
				p.h.disconnect(p.number, err)
				return
			}
		}
	})
}
