package election

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/member"
)

// world is an API server with one Lease and one table, members of a rota and stock replicas. Its schedule is random: of
// requests that are slow or lost, of processes that start, leave, crash, stand still and are out of touch. After each
// step there is at most one side that works.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	events []event
	serial int

	lease   Record
	version int
	table   []*replica // the members, in the order in which they joined

	replicas []*replica
	stock    []*stock
	log      []string
	// worked says which sides have ever worked, and turns how often that changed.
	worked map[string]int
	last   string
}

type event struct {
	at     time.Duration
	serial int
	do     func()
}

const (
	rotaLease, rotaDeadline, rotaRetry, fence = 15 * time.Second, 10 * time.Second, 2 * time.Second, 2500 * time.Millisecond
	second                                    = time.Second
)

func (w *world) after(d time.Duration, do func()) {
	w.serial++
	w.events = append(w.events, event{w.now + d, w.serial, do})
}

func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)))
}

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%9.3f ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// process is what both kinds of replicas have in common.
type process struct {
	w     *world
	name  string
	ended bool
	// paused is until when it stands still, and cut until when nothing that it sends arrives.
	paused, cut time.Duration
	// skew is how far its wall clock is off.
	skew time.Duration
}

func (p *process) wall() int64 { return 1_700_000_000 + int64((p.w.now+p.skew)/second) }

// run does something in the process, once it does not stand still.
func (p *process) run(do func()) {
	if p.ended {
		return
	}
	if p.w.now < p.paused {
		p.w.after(p.paused-p.w.now+p.w.between(1, second/100), func() { p.run(do) })
		return
	}
	do()
}

// call sends a request, which is carried out when it arrives, and answered. Either way may be lost.
func (p *process) call(serve func(), answer func(ok bool)) {
	w := p.w
	cut := func() bool { return w.now < p.cut || w.rng.IntN(40) == 0 }
	delay := func() time.Duration {
		if w.rng.IntN(10) == 0 {
			return w.between(second/10, second)
		}
		return w.between(second/1000, second/20)
	}
	lost := func() { w.after(w.between(second, 2*second), func() { p.run(func() { answer(false) }) }) }
	if cut() {
		lost()
		return
	}
	w.after(delay(), func() { // a request on its way arrives even if its sender has crashed
		serve()
		if cut() {
			lost()
			return
		}
		w.after(delay(), func() { p.run(func() { answer(true) }) })
	})
}

// put is the API server's conditional write of the Lease.
func (w *world) put(r Record) (Record, member.Outcome) {
	if r.Version != w.lease.Version {
		return Record{}, member.OutcomeConflict
	}
	w.version++
	r.Version = fmt.Sprint(w.version)
	w.lease = r
	return r, member.OutcomeDone
}

// replica is a member of the rota. It is in the table from its join to its leave, and knows that a moment later.
type replica struct {
	process
	c       *Candidate
	named   bool // as far as it knows
	leaving bool
	alive   time.Duration // when it last renewed its own Lease
}

func (w *world) startMember() {
	m := &replica{process: process{w: w, name: fmt.Sprintf("member-%d", len(w.replicas)+1),
		skew: w.between(-10*second, 10*second)}}
	m.c = New(Config{Holder: "rota", Lease: rotaLease, Deadline: rotaDeadline, Retry: rotaRetry, Fence: fence, Seed: w.rng.Uint64()})
	w.replicas = append(w.replicas, m)
	m.alive = w.now
	m.call(func() { w.table = append(w.table, m) }, func(bool) { m.look() })
	m.after(0, m.step)
}

func (p *process) after(d time.Duration, do func()) { p.w.after(d, func() { p.run(do) }) }

// look reads the table and renews the member's Lease.
func (m *replica) look() {
	start, named := m.w.now, false
	m.call(func() { named = slices.Contains(m.w.table, m) }, func(ok bool) {
		if ok {
			m.alive = start
			m.know(named)
		}
		m.after(m.w.between(second/2, second), m.look)
	})
}

func (m *replica) know(named bool) {
	m.named = named
	if named && !m.leaving {
		m.c.Join(m.time())
	} else if !named {
		m.c.Quit()
	}
}

func (m *replica) time() member.Time { return member.Time{Mono: m.w.now, Wall: m.wall()} }

// step lets the candidate do what it wants.
func (m *replica) step() {
	if req, ok := m.c.Next(m.time()); ok {
		start := m.w.now
		out, o := Record{}, member.OutcomeUnknown
		m.call(func() {
			switch req.Verb {
			case Get:
				out, o = m.w.lease, member.OutcomeDone
			case Create, Put:
				out, o = m.w.put(req.Record)
			case Unknown:
				panic("no verb")
			}
		}, func(ok bool) {
			if !ok {
				o = member.OutcomeUnknown
			}
			m.c.Answer(m.time(), req, start, o, out)
		})
	}
	m.after(second/20, m.step)
}

// works: rule R2 for its own Lease, and leader election's.
func (m *replica) works() bool {
	return !m.ended && m.w.now >= m.paused && m.named && !m.leaving && m.w.now < m.alive+rotaDeadline && m.w.now < m.c.Until()
}

// leave removes the member from the table. If it was the last one, it releases the Lease. It has stopped working.
func (m *replica) leave() {
	if m.leaving {
		return
	}
	m.leaving = true
	last := len(m.w.table) == 1 && m.w.table[0] == m // the table that its swap is conditional on
	if last {
		m.c.Freeze()
	}
	done := false
	m.call(func() {
		if last && len(m.w.table) != 1 {
			return // a conflict
		}
		m.w.table = slices.DeleteFunc(m.w.table, func(o *replica) bool { return o == m })
		done = true
	}, func(ok bool) {
		if !ok || !done {
			m.c.Thaw()
			m.leaving = false
			m.after(second/10, m.leave)
			return
		}
		m.know(false)
		req, release := m.c.Release(m.time())
		m.w.logf("%s left, releases %v", m.name, release)
		if !release {
			m.ended = true
			return
		}
		m.call(func() { m.w.put(req.Record) }, func(bool) { m.ended = true })
	})
}

// expel removes members that have been silent for a lease (rule R7).
func (w *world) expel() {
	w.table = slices.DeleteFunc(w.table, func(m *replica) bool { return w.now > m.alive+rotaLease+second })
	w.after(second, w.expel)
}

// stock is a replica as client-go's leaderelection makes it.
type stock struct {
	process
	lease, deadline, retry time.Duration
	seen                   Record
	seenAt                 time.Duration
	leads                  bool
	renewed                time.Duration // when the last renewal was answered
	busy                   bool
	release                bool // ReleaseOnCancel
	own                    bool // an old one: it goes by its own duration, not by the Lease's
}

func (w *world) startStock() {
	s := &stock{process: process{w: w, name: fmt.Sprintf("stock-%d", len(w.stock)+1), skew: w.between(-10*second, 10*second)},
		lease: 15 * second, deadline: 10 * second, retry: 2 * second, release: w.rng.IntN(2) == 0, own: w.rng.IntN(2) == 0}
	if w.rng.IntN(3) == 0 {
		s.lease, s.deadline, s.retry = 24*second, 16*second, 3*second
	}
	w.stock = append(w.stock, s)
	s.after(0, s.step)
}

func (s *stock) works() bool {
	return !s.ended && s.w.now >= s.paused && s.leads && s.w.now < s.renewed+s.retry+s.deadline
}

func (s *stock) step() {
	if s.leads && !s.works() {
		s.ended = true // RunOrDie
		return
	}
	s.after(s.w.between(s.retry, s.retry*11/5), s.step)
	if s.busy {
		return
	}
	s.busy = true
	var r Record
	now := s.w.now
	s.call(func() { r = s.w.lease }, func(ok bool) {
		if !ok {
			s.busy = false
			return
		}
		if r.says() != s.seen {
			s.seen, s.seenAt = r.says(), s.w.now
		}
		lasts := r.Duration
		if s.own {
			lasts = s.lease
		}
		if mine := r.Holder == s.name; r.Holder != "" && !mine && s.seenAt+lasts > now {
			s.busy = false
			return
		}
		next := Record{Version: r.Version, Holder: s.name, Duration: s.lease, Acquired: s.wall(), Renewed: s.wall(),
			Transitions: r.Transitions + 1}
		if r.Holder == s.name {
			next.Acquired, next.Transitions = r.Acquired, r.Transitions
		}
		o := member.OutcomeUnknown
		s.call(func() { _, o = s.w.put(next) }, func(ok bool) {
			s.busy = false
			if ok && o == member.OutcomeDone {
				s.seen, s.seenAt = next.says(), s.w.now
				s.leads, s.renewed = true, s.w.now
			}
		})
	})
}

// end is SIGTERM: work ends, and the Lease is released if it is set up so.
func (s *stock) end() {
	leads := s.works()
	s.leads = false
	if !leads || !s.release || s.busy {
		s.ended = true
		return
	}
	s.busy = true
	var r Record
	s.call(func() { r = s.w.lease }, func(ok bool) {
		if !ok || r.Holder != s.name {
			s.ended = true
			return
		}
		r.Holder, r.Duration, r.Acquired, r.Renewed = "", second, s.wall(), s.wall()
		s.call(func() { s.w.put(r) }, func(bool) { s.ended = true })
	})
}

// chance does something to somebody now and then. toRota says which side is to be started.
func (w *world) chance(toRota *bool) {
	defer w.after(w.between(second, 12*second), func() { w.chance(toRota) })
	if w.rng.IntN(8) == 0 {
		*toRota = !*toRota
	}
	var members []*replica
	for _, m := range w.replicas {
		if !m.ended {
			members = append(members, m)
		}
	}
	var others []*stock
	for _, s := range w.stock {
		if !s.ended {
			others = append(others, s)
		}
	}
	switch n := w.rng.IntN(10); {
	case *toRota && len(members) < 3:
		w.logf("a member starts")
		w.startMember()
	case !*toRota && len(others) < 3:
		w.logf("a stock replica starts")
		w.startStock()
	case n < 4 && *toRota && len(others) > 0:
		w.logf("%s ends", others[0].name)
		others[0].end()
	case n < 4 && !*toRota && len(members) > 0:
		w.logf("%s leaves", members[0].name)
		members[0].run(members[0].leave)
	case len(members)+len(others) == 0:
	default:
		var p *process
		if i := w.rng.IntN(len(members) + len(others)); i < len(members) {
			p = &members[i].process
		} else {
			p = &others[i-len(members)].process
		}
		long := w.between(second, 40*second)
		switch {
		case n < 6:
			w.logf("%s stands still for %v", p.name, long)
			p.paused = max(p.paused, w.now+long)
		case n < 8:
			w.logf("%s is out of touch for %v", p.name, long)
			p.cut = max(p.cut, w.now+long)
		case n == 8:
			w.logf("%s is killed", p.name)
			p.ended = true
		}
	}
}

// churn has the last member leave about when another one comes, again and again, while a stock replica waits.
func (w *world) churn() {
	defer w.after(w.between(second/10, 4*second), w.churn)
	var members []*replica
	for _, m := range w.replicas {
		if !m.ended {
			members = append(members, m)
		}
	}
	switch s := w.stock[len(w.stock)-1]; {
	case s.works():
		s.end()
	case s.ended && len(members) > 0 && members[0].works():
		w.startStock()
	}
	if len(members) < 2 {
		w.after(w.between(0, second/2), w.startMember)
	}
	if len(members) > 0 && members[0].works() {
		w.after(w.between(0, second), func() { members[0].run(members[0].leave) })
	}
}

// check returns which sides work, and an error if both do.
func (w *world) check() error {
	var who []string
	sides := map[string]bool{}
	for _, m := range w.replicas {
		if m.works() {
			who = append(who, m.name)
			sides["rota"] = true
		}
	}
	for _, s := range w.stock {
		if s.works() {
			who = append(who, s.name)
			sides["stock"] = true
		}
	}
	for side := range sides {
		w.worked[side]++
		if len(sides) == 1 && side != w.last {
			w.last = side
			w.worked["turns"]++
			w.logf("%s works: %v, the Lease %+v", side, who, w.lease)
		}
	}
	if len(sides) > 1 {
		return fmt.Errorf("at %v both sides work: %v; the Lease says %+v", w.now, who, w.lease)
	}
	return nil
}

// runWorld runs a random schedule.
func runWorld(seed uint64, long time.Duration, churn bool) (*world, error) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 2)), worked: map[string]int{}}
	toRota := true
	w.startStock()
	if churn {
		w.after(second, w.churn)
	} else {
		w.startStock()
		w.after(20*second, func() { w.chance(&toRota) })
	}
	w.after(second, w.expel)
	for w.now < long {
		i := 0
		for j, e := range w.events {
			if e.at < w.events[i].at || e.at == w.events[i].at && e.serial < w.events[i].serial {
				i = j
			}
		}
		e := w.events[i]
		w.events = slices.Delete(w.events, i, i+1)
		// Work goes on until the next event, but for deadlines that pass in between.
		w.now = e.at
		if err := w.check(); err != nil {
			return w, err
		}
		e.do()
		if err := w.check(); err != nil {
			return w, err
		}
	}
	return w, nil
}

// TestModel: whatever happens, stock replicas and members never work at once, and work goes from one side to the other.
func TestModel(t *testing.T) {
	for name, churn := range map[string]bool{"faults": false, "churn": true} {
		t.Run(name, func(t *testing.T) { testModel(t, churn) })
	}
}

func testModel(t *testing.T, churn bool) {
	t.Helper()
	runs := 300
	if testing.Short() {
		runs = 60
	}
	turns, worked := 0, map[string]int{}
	for seed := range uint64(runs) {
		w, err := runWorld(seed, 10*time.Minute, churn)
		if err != nil {
			for _, line := range w.log[max(0, len(w.log)-60):] {
				t.Log(line)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		turns += w.worked["turns"] - 1
		worked["rota"] += w.worked["rota"]
		worked["stock"] += w.worked["stock"]
	}
	t.Logf("%d runs of 10 minutes: work changed sides %d times; the rota worked at %d moments, stock replicas at %d",
		runs, turns, worked["rota"], worked["stock"])
	if turns < 2*runs || worked["rota"] == 0 || worked["stock"] == 0 {
		t.Errorf("work changed sides %d times in %d runs: the schedules are not worth much", turns, runs)
	}
}
