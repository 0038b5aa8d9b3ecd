package election

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// world is an API server with one Lease and one table, members of a rota and stock replicas. Its schedule is random: of
// requests that are slow, lost or late, of processes that start, leave, crash, stand still and are out of touch, and of
// people who edit the Lease's labels or delete it. Stock replicas release it as client-go does, and members watch it.
//
// What is checked after each step:
//
//   - A member works only while the Lease is the rota's and has not run out. Only if somebody who is not the rota took
//     it away before that (a stock replica that stood still clears it, or a person deletes it), a member works on: until
//     it hears of that, and if its watch is cut, until rotaDeadline after a renewal.
//   - The rota takes the Lease from another holder only when it has run out, fence ago. It creates one that is missing
//     only after a lease and fence.
//   - A stock replica works beside a member only if it does what stock leader election cannot prevent: it stood still
//     since its last renewal, or works while it releases the Lease at its deadline; or after the Lease was taken away.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	events []event
	serial int

	lease   Record
	version int
	// since is when the Lease began to say what it says.
	since time.Duration
	// taken is when somebody last took a Lease away that had not run out, and that was not his; 0: nobody did.
	taken  time.Duration
	deeds  deeds
	counts counts
	err    error      // a write that must not be
	table  []*replica // the members, in the order in which they joined

	replicas []*replica
	stock    []*stock
	log      []string
	// worked says which sides have ever worked, and turns how often that changed.
	worked map[string]int
	last   string
}

// deeds are what happens in a world, beside what is always there.
type deeds struct {
	churn   bool // members come and go, and a stock replica waits
	deletes bool // somebody deletes the Lease
}

type counts struct {
	taken, late, deleted, edited int
	beside, unheard              int // moments at which both sides work, and at which members do without the Lease
}

func (c *counts) add(o counts) {
	c.taken += o.taken
	c.late += o.late
	c.deleted += o.deleted
	c.edited += o.edited
	c.beside += o.beside
	c.unheard += o.unheard
}

type event struct {
	at     time.Duration
	serial int
	do     func()
}

const (
	rotaLease, rotaDeadline, rotaRetry, fence = 15 * time.Second, 10 * time.Second, 2 * time.Second, 2500 * time.Millisecond
	second                                    = time.Second
	watchLag                                  = second / 4
	stockStops                                = 20 * second // RenewDeadline, RetryPeriod, and a slow answer
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

// call sends a request, which is carried out when it arrives, and answered. Either way may be lost. A request may also
// arrive long after its sender has given it up.
func (p *process) call(serve func(), answer func(ok bool)) {
	w := p.w
	if w.rng.IntN(60) == 0 {
		w.after(w.between(second, 8*second), func() { w.counts.late++; serve() })
		w.after(w.between(second, 2*second), func() { p.run(func() { answer(false) }) })
		return
	}
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
//
// by is who writes, and lasts is how long he holds that another one's Lease lasts; 0: as long as it says.
func (w *world) put(r Record, by string, lasts time.Duration) (Record, member.Outcome) {
	if r.Version != w.lease.Version {
		return Record{}, member.OutcomeConflict
	}
	w.version++
	r.Version = fmt.Sprint(w.version)
	out := w.ranOut(lasts)
	if by == "rota" && w.lease.Holder != "rota" && w.lease.Holder != "" && w.now < w.since+w.lease.Duration+fence {
		w.err = fmt.Errorf("at %v the rota takes the Lease %+v, which says so since %v", w.now, w.lease, w.since)
	}
	if by == "rota" && w.lease.Version == "" && w.now < w.since+rotaLease+fence {
		w.err = fmt.Errorf("at %v the rota creates the Lease, which is missing since %v", w.now, w.since)
	}
	w.set(r, out || by == w.lease.Holder)
	return r, member.OutcomeDone
}

// ranOut says that the Lease is nobody's, or has run out.
func (w *world) ranOut(lasts time.Duration) bool {
	if lasts == 0 {
		lasts = w.lease.Duration
	}
	return w.lease.Holder == "" || w.now >= w.since+lasts
}

// set makes the Lease say something else. allowed says that nobody loses it by that.
func (w *world) set(r Record, allowed bool) {
	if !allowed {
		w.counts.taken++
		w.taken = w.now
		w.logf("the Lease of %s is taken away: %+v", w.lease.Holder, r)
	}
	if r.says() != w.lease.says() {
		w.since = w.now
	}
	w.lease = r
	for _, m := range w.replicas {
		m.hear(fmt.Sprint(w.version), r)
	}
}

// replica is a member of the rota. It is in the table from its join to its leave, and knows that a moment later.
type replica struct {
	process
	c       *Candidate
	named   bool // as far as it knows
	leaving bool
	alive   time.Duration // when it last renewed its own Lease
	heard   time.Duration // when the last event of its watch arrives
}

// hear delivers an event of the watch, after those before it. While the member is out of touch nothing arrives; when it
// is back, it lists.
func (m *replica) hear(version string, r Record) {
	w := m.w
	m.heard = max(m.heard, w.now+w.between(second/1000, watchLag), m.cut)
	w.after(m.heard-w.now, func() { m.run(func() { m.c.Heard(m.time(), version, r) }) })
}

func (w *world) startMember() {
	m := &replica{process: process{w: w, name: fmt.Sprintf("member-%d", len(w.replicas)+1),
		skew: w.between(-10*second, 10*second)}}
	cfg := Config{Holder: "rota", Lease: rotaLease, Deadline: rotaDeadline, Retry: rotaRetry, Fence: fence, Seed: w.rng.Uint64()}
	if w.rng.IntN(4) == 0 { // old stock replicas take the Lease after 15 s, whatever it says
		cfg.Lease, cfg.Deadline = 40*second, 14*second
	}
	m.c = New(cfg)
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
				out, o = m.w.put(req.Record, "rota", 0)
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
		m.call(func() { m.w.put(req.Record, "rota", 0) }, func(bool) { m.ended = true })
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
	renewed                time.Duration // when the last renewal that was answered was sent
	polls                  time.Duration // when the poll ends that tries to renew; 0: there is none
	releasing              bool          // at its deadline: it works meanwhile
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

// works: RunOrDie ends the process, and manager.Manager the reconcilers, once the Lease is released.
func (s *stock) works() bool { return !s.ended && s.w.now >= s.paused && s.leads }

// strays: it may work beside others, as stock leader election cannot prevent.
func (s *stock) strays() bool { return s.releasing || s.paused > s.renewed }

func (s *stock) lasts() time.Duration {
	if s.own {
		return s.lease
	}
	return 0
}

// step tries to take the Lease until it leads.
func (s *stock) step() {
	if s.leads {
		return
	}
	s.after(s.w.between(s.retry, s.retry*11/5), s.step)
	if s.busy {
		return
	}
	s.try(func(ok bool) {
		if ok {
			s.leads = true
			s.after(s.retry, s.poll)
		}
	})
}

// poll tries to renew the Lease until RenewDeadline has passed since the poll began.
func (s *stock) poll() {
	if !s.leads || s.releasing {
		return
	}
	end := s.w.now + s.deadline
	s.polls = end
	s.after(s.deadline, func() {
		if s.polls == end && s.leads {
			s.polls, s.releasing = 0, true
			s.giveUp()
		}
	})
	var again func()
	again = func() {
		if s.polls != end || !s.leads {
			return
		}
		s.try(func(ok bool) {
			switch {
			case s.polls != end || !s.leads:
			case ok:
				s.polls = 0
				s.after(s.retry, s.poll)
			default:
				s.after(s.retry, again)
			}
		})
	}
	again()
}

// try is tryAcquireOrRenew.
func (s *stock) try(done func(bool)) {
	s.busy = true
	var r Record
	now, polls := s.w.now, s.polls
	answer := func(ok bool) { s.busy = false; done(ok) }
	s.call(func() { r = s.w.lease }, func(ok bool) {
		if !ok || s.polls != polls { // its context has ended
			answer(false)
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
			answer(false)
			return
		}
		next := Record{Version: r.Version, Holder: s.name, Duration: s.lease, Acquired: s.wall(), Renewed: s.wall(),
			Transitions: r.Transitions + 1}
		if r.Holder == s.name {
			next.Acquired, next.Transitions = r.Acquired, r.Transitions
		}
		o, sent := member.OutcomeUnknown, s.w.now
		s.call(func() { _, o = s.w.put(next, s.name, s.lasts()) }, func(ok bool) {
			if ok = ok && o == member.OutcomeDone; ok {
				s.seen, s.seenAt, s.renewed = next.says(), s.w.now, sent
			}
			answer(ok && s.polls == polls)
		})
	})
}

// end is SIGTERM: work ends, and the Lease is released if it is set up so.
func (s *stock) end() {
	if !s.leads {
		s.ended = true
		return
	}
	if !s.releasing {
		s.leads, s.polls = false, 0
		s.giveUp()
	}
}

// giveUp is release, and the end. It asks for the Lease's version, but goes by the record that it saw before.
func (s *stock) giveUp() {
	if !s.release {
		s.ended = true
		return
	}
	var r Record
	s.call(func() { r = s.w.lease }, func(ok bool) {
		if !ok || r.Version == "" || s.seen.Holder != s.name {
			s.ended = true
			return
		}
		r.Holder, r.Duration, r.Acquired, r.Renewed = "", second, s.wall(), s.wall()
		s.call(func() { s.w.put(r, s.name, s.lasts()) }, func(bool) { s.ended = true })
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
	if w.rng.IntN(10) == 0 {
		w.counts.edited++ // its labels
		w.version++
		if r := w.lease; r.Version != "" {
			r.Version = fmt.Sprint(w.version)
			w.set(r, true)
		}
	}
	if w.deeds.deletes && w.rng.IntN(10) == 0 {
		w.counts.deleted++
		w.version++
		w.set(Record{}, w.ranOut(0))
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
		others[0].run(others[0].end)
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
	case s.works() && !s.releasing:
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
	if w.err != nil {
		return w.err
	}
	for _, m := range w.replicas {
		if !m.works() {
			continue
		}
		who = append(who, m.name)
		sides["rota"] = true
		if w.lease.Holder == "rota" && !w.ranOut(0) {
			continue
		}
		w.counts.unheard++
		if w.taken == 0 || w.now > w.taken+m.c.cfg.Deadline || w.now > max(m.heard, m.paused)+second/50 {
			return fmt.Errorf("at %v %s works, and the Lease says %+v since %v; it was last taken away at %v", w.now, m.name,
				w.lease, w.since, w.taken)
		}
	}
	excused := true
	for _, s := range w.stock {
		if s.works() {
			who = append(who, s.name)
			sides["stock"] = true
			excused = excused && s.strays()
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
		w.counts.beside++
	}
	if len(sides) > 1 && !excused && (w.taken == 0 || w.now > w.taken+stockStops) {
		return fmt.Errorf("at %v both sides work: %v; the Lease says %+v", w.now, who, w.lease)
	}
	return nil
}

// runWorld runs a random schedule.
func runWorld(seed uint64, long time.Duration, d deeds) (*world, error) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 2)), deeds: d, worked: map[string]int{}}
	toRota := true
	w.startStock()
	if d.churn {
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

// TestModel: whatever happens, each side keeps to what is promised (see world), and work goes from one to the other.
func TestModel(t *testing.T) {
	for name, d := range map[string]deeds{"faults": {}, "churn": {churn: true}, "deletions": {deletes: true}} {
		t.Run(name, func(t *testing.T) { testModel(t, d) })
	}
}

func testModel(t *testing.T, d deeds) {
	t.Helper()
	runs := 300
	if testing.Short() {
		runs = 60
	}
	turns, worked := 0, map[string]int{}
	var counts counts
	for seed := range uint64(runs) {
		w, err := runWorld(seed, 10*time.Minute, d)
		if err != nil {
			for _, line := range w.log[max(0, len(w.log)-60):] {
				t.Log(line)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		turns += w.worked["turns"] - 1
		counts.add(w.counts)
		worked["rota"] += w.worked["rota"]
		worked["stock"] += w.worked["stock"]
	}
	t.Logf("%d runs of 10 minutes: work changed sides %d times; the rota worked at %d moments, stock replicas at %d",
		runs, turns, worked["rota"], worked["stock"])
	t.Logf("%+v", counts)
	if turns < 2*runs || worked["rota"] == 0 || worked["stock"] == 0 {
		t.Errorf("work changed sides %d times in %d runs: the schedules are not worth much", turns, runs)
	}
}
