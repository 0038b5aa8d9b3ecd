package workers

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// model is a tier with queues, and workers, in simulated time.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Duration
	queues []*queue.Queue
	shares []shares // what each dispatcher knows
	turns  []uint64
	names  int
	asks   uint64
	taken  []int     // from each queue
	owed   []float64 // arrivals that are not whole yet
}

const modelKind = "ConfigMap"

func newModel(t *testing.T, dispatchers int) *model {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(1, 2)), shares: make([]shares, dispatchers), turns: make([]uint64, dispatchers),
		taken: make([]int, dispatchers), owed: make([]float64, dispatchers),
	}
	for range dispatchers {
		q, err := queue.New(queue.Config{Slots: 8, Kinds: []string{modelKind}})
		require.NoError(t, err)
		all := slot.SetOf(slot.Range{First: 0, Last: 7})
		q.SetDeadline(0, 24*time.Hour)
		q.Open(0, all, 1)
		m.queues = append(m.queues, q)
	}
	return m
}

func (m *model) id(i int) Process { return Process{byte(i + 1)} }

func (m *model) change(at int, class queue.Class) {
	m.names++
	err := m.queues[at].Change(m.now, queue.Change{
		Key: queue.Key{Kind: modelKind, Namespace: "default", Name: strconv.Itoa(m.names)}, Class: class,
	})
	require.NoError(m.t, err)
}

// oldest is for how long the oldest key of a queue has waited.
func (m *model) oldest(at int) backlog {
	s := m.queues[at].Stats()[0]
	var b backlog
	if s.Ready > 0 {
		b.all = m.now - s.Oldest
	}
	if s.OldestChanged > 0 {
		b.changed = m.now - s.OldestChanged
	}
	return b
}

// look has a dispatcher see how long keys wait everywhere.
func (m *model) look(at int) {
	var s shares
	for i := range m.queues {
		b := backlogs{modelKind: m.oldest(i)}
		if i == at {
			s.own = b
		} else {
			s.others = append(s.others, theirs{m.id(i), b})
		}
	}
	m.shares[at] = s
}

// take takes a key at once; false: there is none.
func (m *model) take(at int) bool {
	m.asks++
	q := m.queues[at]
	require.NoError(m.t, q.Ask(m.now, queue.Ask{ID: m.asks, Worker: "w", Max: 1, Until: m.now}))
	found := false
	for _, a := range q.Actions(m.now) {
		if g, ok := a.(queue.Given); ok && len(g.Takes) > 0 {
			found = true
			require.NoError(m.t, q.Done(m.now, g.Takes[0].ID, "w", queue.Result{}))
			m.taken[at]++
		}
	}
	return found
}

// poll is a poll of a worker at a dispatcher, as Front.poll does it.
func (m *model) poll(at int) {
	m.turns[at]++
	kinds := []string{modelKind}
	if p, ok := m.shares[at].first(kinds, m.rng.Float64(), m.turns[at]); ok {
		if m.take(int(p[0]) - 1) {
			return
		}
		m.shares[at] = m.shares[at].without(p)
	}
	if m.take(at) {
		return
	}
	for _, i := range m.rng.Perm(len(m.queues)) {
		if m.take(i) {
			return
		}
	}
}

// run has changes and polls come at each dispatcher, as many a second as given.
func (m *model) run(last time.Duration, changes, polls []float64) {
	const step = 10 * time.Millisecond
	end := m.now + last
	polled := make([]float64, len(polls))
	for ; m.now < end; m.now += step {
		for i := range m.queues {
			// Each looks at another time.
			if (m.now+time.Duration(i)*130*time.Millisecond)%backlogPeriod < step {
				m.look(i)
			}
			for m.owed[i] += changes[i] * step.Seconds(); m.owed[i] >= 1; m.owed[i]-- {
				m.change(i, queue.Changed)
			}
			for polled[i] += polls[i] * step.Seconds(); polled[i] >= 1; polled[i]-- {
				m.poll(i)
			}
		}
	}
}

// evenly gives each of n a part.
func evenly(n int, of float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = of / float64(n)
	}
	return out
}

// TestOldestFirst: where there are too few workers, keys wait about as long at all dispatchers, wherever workers ask
// and however keys are spread.
func TestOldestFirst(t *testing.T) {
	const load, work = 300, 200 // a second
	for _, c := range []struct {
		name           string
		changes, polls []float64
	}{
		{"all workers at one", evenly(3, load), []float64{work, 0, 0}},
		{"all workers at one of two", evenly(2, load), []float64{0, work}},
		{"all workers at one of twelve", evenly(12, load), append(make([]float64, 11), work)},
		{"few workers at one", evenly(3, load), []float64{0.45 * work, 0.45 * work, 0.1 * work}},
		{"many keys at one", []float64{0.6 * load, 0.3 * load, 0.1 * load}, evenly(3, work)},
		{"all workers where few keys are", []float64{0.45 * load, 0.45 * load, 0.1 * load}, []float64{0, 0, work}},
		{"workers everywhere", evenly(6, load), evenly(6, work)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(t, len(c.changes))
			widest := time.Duration(0)
			for range 24 {
				m.run(5*time.Second, c.changes, c.polls)
				least, most := m.oldest(0).all, m.oldest(0).all
				for i := range m.queues {
					least, most = min(least, m.oldest(i).all), max(most, m.oldest(i).all)
				}
				widest = max(widest, most-least)
			}
			at := ""
			for i := range m.queues {
				at += fmt.Sprintf(" %v", m.oldest(i).all)
			}
			t.Logf("oldest:%s; %v apart at most", at, widest)
			if m.oldest(0).all < 20*time.Second {
				t.Errorf("the oldest key has waited for%s: there are enough workers", at)
			}
			if limit := behind + farBehind + 2*backlogPeriod; widest > limit {
				t.Errorf("the oldest keys were %v apart, want %v at most:%s", widest, limit, at)
			}
		})
	}
}

// TestOwnFirst: where there are enough workers, those of each dispatcher take its own keys, without the way to another
// one.
func TestOwnFirst(t *testing.T) {
	m := newModel(t, 3)
	m.run(time.Minute, evenly(3, 200), evenly(3, 300))
	for i, turns := range m.turns {
		for n := range turns {
			if p, ok := m.shares[i].first([]string{modelKind}, m.rng.Float64(), n); ok {
				t.Fatalf("dispatcher %d asks %s first", i, p)
			}
		}
	}
}

// TestOpenedElsewhere: keys of slots that were just opened at another dispatcher do not come before those of objects that
// changed here, and one ask in eight is for them.
func TestOpenedElsewhere(t *testing.T) {
	m := newModel(t, 2)
	for range 100_000 {
		m.change(1, queue.Opened)
	}
	m.run(time.Minute, []float64{200, 0}, []float64{100, 0})
	here, there := m.taken[0], m.taken[1]
	t.Logf("taken: %d of objects that changed, %d others", here, there)
	if there < 300 || there > 1000 {
		t.Errorf("%d of %d takes are of the slot that was opened", there, here+there)
	}
}

// TestNoFigures: nobody is asked first of whom nothing is known.
func TestNoFigures(t *testing.T) {
	for _, s := range []shares{{}, {own: backlogs{modelKind: {all: time.Minute}}}, {others: []theirs{{}}}} {
		if p, ok := s.first([]string{modelKind, "Pod"}, 0, 1); ok {
			t.Errorf("%+v: %s is asked first", s, p)
		}
	}
}

// An autoscaler must not ask for workers that would get nothing.
func TestPendingIsWhatWorkersCanBeGiven(t *testing.T) {
	for most, want := range map[int]int{0: 9, 5: 5, 20: 9} {
		if got := figuresOf(0, queue.Stats{Ready: 7, Taken: 2, MaxTaken: most}); got.Pending != want {
			t.Errorf("at most %d: %d pending, want %d", most, got.Pending, want)
		}
	}
}
