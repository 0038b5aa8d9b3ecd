package queue_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// model is what a queue should do, in the simplest form.
type model struct {
	t        *rapid.T
	q        *queue.Queue
	cfg      queue.Config
	now      time.Duration
	deadline time.Duration
	slots    [8]struct{ held, open, draining, told bool }
	keys     map[queue.Key]*modelKey
	takes    map[uint64]*modelTake
	ended    map[uint64]modelDone
	asks     map[uint64]queue.Ask
	version  int
	lastAsk  uint64
	affine   time.Duration // when there last was a worker that keys may prefer
	epoch    uint64
}

type modelKey struct {
	slot     slot.Slot
	pending  bool
	gone     bool
	version  string
	due      time.Duration
	attempts int
	take     *modelTake
}

type modelTake struct {
	queue.Take
	key    *modelKey
	affine bool
}

// TestRandomly does anything in any order, against the model.
func TestRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := queue.Config{Slots: 8, Kinds: []string{"Pod", "Site"}, MaxAffine: rapid.IntRange(0, 3).Draw(t, "affine"),
			MaxTaken: map[string]int{"Pod": rapid.IntRange(0, 3).Draw(t, "most")}}
		q, err := queue.New(cfg)
		require.NoError(t, err)
		cfg.SetDefaults()
		m := &model{t: t, q: q, cfg: cfg, keys: map[queue.Key]*modelKey{}, takes: map[uint64]*modelTake{},
			ended: map[uint64]modelDone{},
			asks:  map[uint64]queue.Ask{}, affine: -time.Hour}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"change": m.change, "again": m.change, "ask": m.ask, "poll": m.ask, "done": m.done, "end": m.done,
			"extend": m.extend, "hold": m.hold, "open": m.open, "drain": m.drain, "shut": m.shut, "time": m.time, "later": m.time,
			"deadline": m.renew, "cancel": m.cancel, "claim": m.claim, "call off": m.callOff, "": m.check,
		})
		m.finish(t)
	})
}

func (m *model) slotsOf(t *rapid.T) (set slot.Set) {
	for range rapid.IntRange(1, 8).Draw(t, "slots") {
		set.Add(slot.Slot(rapid.IntRange(0, 7).Draw(t, "slot")))
	}
	return set
}

func (m *model) change(t *rapid.T) {
	n := rapid.IntRange(0, 11).Draw(t, "key")
	key := queue.Key{Kind: []string{"Pod", "Site"}[n%2], Namespace: "ns" + strconv.Itoa(n%3), Name: strconv.Itoa(n)}
	s := slot.Slot(n % 8)
	m.version++
	c := queue.Change{
		Key: key, Slot: s, Version: strconv.Itoa(m.version), Gone: rapid.Bool().Draw(t, "gone"),
		Class:   queue.Class(rapid.IntRange(0, 2).Draw(t, "class")),
		Related: rapid.IntRange(0, 3).Draw(t, "related") == 0,
	}
	require.NoError(t, m.q.Change(m.now, c))
	if !m.slots[s].held {
		return
	}
	k := m.keys[key]
	if k == nil {
		k = &modelKey{slot: s}
		m.keys[key] = k
	}
	k.pending, k.due = true, m.now
	if !c.Related {
		k.gone, k.version = c.Gone, c.Version
	}
}

func (m *model) worker(t *rapid.T) string {
	return fmt.Sprint("w", rapid.IntRange(1, 3).Draw(t, "worker"))
}

func (m *model) ask(t *rapid.T) {
	m.lastAsk++
	a := queue.Ask{
		ID: m.lastAsk, Worker: m.worker(t), Max: rapid.IntRange(1, 3).Draw(t, "max"),
		Until:  m.now + time.Duration(rapid.IntRange(0, 20).Draw(t, "wait"))*time.Second,
		Length: time.Duration(rapid.IntRange(1, 100).Draw(t, "length")) * time.Second,
		Affine: rapid.Bool().Draw(t, "affine"), Stream: rapid.Bool().Draw(t, "stream"),
	}
	if rapid.Bool().Draw(t, "one kind") {
		a.Kinds = []string{"Pod"}
	}
	require.NoError(t, m.q.Ask(m.now, a))
	m.asks[a.ID] = a
	m.seesAffine()
	m.act(t)
}

func (m *model) cancel(t *rapid.T) {
	id := uint64(rapid.IntRange(1, int(m.lastAsk)+1).Draw(t, "ask"))
	m.seesAffine()
	m.q.Cancel(m.now, id)
	delete(m.asks, id)
}

// claim has an Ask get keys from elsewhere.
func (m *model) claim(t *rapid.T) {
	id := uint64(rapid.IntRange(1, int(m.lastAsk)+1).Draw(t, "ask"))
	n := rapid.IntRange(0, 4).Draw(t, "keys")
	m.seesAffine()
	a, known := m.asks[id]
	if got := m.q.Claim(m.now, id, n); got != min(n, a.Max) {
		t.Fatalf("room for %d of %d keys in %+v", got, n, a)
	} else if known && got > 0 {
		a.Max -= got
		m.asks[id] = a
		if !a.Stream {
			delete(m.asks, id)
		}
	}
}

func (m *model) anyTake(t *rapid.T) (id uint64, take *modelTake) {
	var ids []uint64
	for id := range m.takes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = append(ids, 1) // it may have ended long ago
	id = rapid.SampledFrom(ids).Draw(t, "take")
	take = m.takes[id]
	if take != nil && take.Deadline <= m.now {
		take = nil
	}
	return id, take
}

// modelDone is a take that was done.
type modelDone struct {
	at     time.Duration
	worker string
	result queue.Result
}

// ends checks an error about a take.
func (m *model) ends(t *rapid.T, err error, take *modelTake, worker string) bool {
	switch {
	case take == nil && err == nil:
		t.Fatal("a take that had ended was taken for one under way")
	case take != nil && (err == nil) != (take.Worker == worker):
		t.Fatalf("take %d of %s, by %s: %v", take.ID, take.Worker, worker, err)
	}
	return err == nil
}

func (m *model) done(t *rapid.T) {
	m.expire()
	id, take := m.anyTake(t)
	worker := m.worker(t)
	if rapid.IntRange(0, 3).Draw(t, "how") == 0 {
		if m.ends(t, m.q.Release(m.now, id, worker), take, worker) {
			m.end(take)
			if !take.key.pending {
				take.key.pending, take.key.due = true, m.now
			}
		}
		return
	}
	r := queue.Result{
		Retry: rapid.Bool().Draw(t, "retry"), After: time.Duration(rapid.IntRange(0, 3).Draw(t, "after")) * time.Second,
	}
	err := m.q.Done(m.now, id, worker, r)
	if was, ok := m.ended[id]; ok && was.worker == worker && was.result == r && m.now-was.at <= 2*time.Minute {
		if err != nil {
			t.Fatalf("take %d is done once more: %v", id, err)
		}
		return
	}
	if !m.ends(t, err, take, worker) {
		return
	}
	m.ended[id] = modelDone{m.now, worker, r}
	m.end(take)
	k := take.key
	switch {
	case r.Retry:
		m.failed(k, m.now, r.After)
		return
	case !k.pending && r.After > 0:
		k.pending, k.due = true, m.now+r.After
	case !k.pending:
		delete(m.keys, take.Key)
	}
	k.attempts = 0
}

func (m *model) end(take *modelTake) {
	take.key.take = nil
	delete(m.takes, take.ID)
}

func (m *model) failed(k *modelKey, at, least time.Duration) {
	delay := m.cfg.BaseDelay << k.attempts
	if delay > m.cfg.MaxDelay || k.attempts > 40 {
		delay = m.cfg.MaxDelay
	}
	if k.attempts++; !k.pending {
		k.pending, k.due = true, at+max(delay, least)
	}
}

func (m *model) extend(t *rapid.T) {
	m.expire()
	id, take := m.anyTake(t)
	worker := m.worker(t)
	got, err := m.q.Extend(m.now, id, worker, time.Duration(rapid.IntRange(0, 100).Draw(t, "length"))*time.Second)
	if !m.ends(t, err, take, worker) {
		return
	}
	if got.Deadline > m.deadline && got.Deadline > take.Deadline {
		t.Fatalf("take %d was extended to %v, but the member's deadline is %v", id, got.Deadline, m.deadline)
	}
	if got.Deadline < take.Deadline {
		t.Fatalf("take %d ended at %v, and after an extension at %v", id, take.Deadline, got.Deadline)
	}
	if got.Draining != m.slots[take.Slot].draining {
		t.Fatalf("draining %v", got.Draining)
	}
	take.Deadline = got.Deadline
}

func (m *model) open(t *rapid.T) {
	set := m.slotsOf(t)
	m.epoch++
	m.q.Open(m.now, set, m.epoch)
	for _, s := range set.Slots() {
		m.slots[s].held, m.slots[s].open, m.slots[s].draining = true, true, false
	}
}

func (m *model) hold(t *rapid.T) {
	set := m.slotsOf(t)
	m.q.Hold(m.now, set)
	for _, s := range set.Slots() {
		m.slots[s].held = true
	}
	held := m.q.Held()
	for s, st := range m.slots {
		if held.Has(slot.Slot(s)) != st.held {
			t.Fatalf("held %v, but slot %d %v", held, s, st.held)
		}
	}
}

func (m *model) drain(t *rapid.T) {
	set := m.slotsOf(t)
	m.q.Drain(m.now, set)
	for _, s := range set.Slots() {
		st := &m.slots[s]
		if st.told = false; !st.draining {
			st.held, st.open, st.draining = true, false, true
		}
	}
}

// callOff drains and opens, with nothing asked between.
func (m *model) callOff(t *rapid.T) {
	m.drain(t)
	m.open(t)
}

func (m *model) shut(t *rapid.T) {
	m.expire()
	set := m.slotsOf(t)
	m.q.Shut(m.now, set)
	for _, s := range set.Slots() {
		m.slots[s].held, m.slots[s].open, m.slots[s].draining = false, false, false
	}
	for key, k := range m.keys {
		if set.Has(k.slot) {
			if k.take != nil {
				m.end(k.take)
			}
			delete(m.keys, key)
		}
	}
}

func (m *model) renew(t *rapid.T) {
	m.deadline = max(m.deadline, m.now+time.Duration(rapid.IntRange(0, 30).Draw(t, "deadline"))*time.Second)
	m.q.SetDeadline(m.now, m.deadline)
}

func (m *model) time(t *rapid.T) {
	until := m.now + time.Duration(rapid.IntRange(1, 10_000).Draw(t, "ms"))*time.Millisecond
	for i := 0; m.q.Wake() <= until; i++ {
		if i > 1000 {
			t.Fatalf("at %v it wants to wake at %v again and again", m.now, m.q.Wake())
		}
		m.now = max(m.now, m.q.Wake())
		m.act(t)
	}
	m.now = until
}

// expire ends the takes whose time is over.
func (m *model) expire() {
	m.seesAffine()
	for _, take := range m.takes {
		if take.Deadline <= m.now {
			m.end(take)
			m.failed(take.key, m.now, 0)
		}
	}
}

// act carries out what the queue wants.
func (m *model) act(t *rapid.T) {
	m.expire()
	for _, a := range m.q.Actions(m.now) {
		switch a := a.(type) {
		case queue.Given:
			m.given(t, a)
		case queue.Drained:
			for _, s := range a.Slots.Slots() {
				if m.busy(s) || !m.slots[s].draining {
					t.Fatalf("slot %v is called drained: busy %v, %+v", s, m.busy(s), m.slots[s])
				}
				m.slots[s].told = true
			}
		}
	}
}

func (m *model) busy(s slot.Slot) bool {
	for _, take := range m.takes {
		if take.Slot == s {
			return true
		}
	}
	return false
}

func (m *model) given(t *rapid.T, g queue.Given) {
	a, known := m.asks[g.Ask]
	if !known || len(g.Takes) > a.Max || g.Over == a.Stream {
		t.Fatalf("ask %+v: %+v", a, g)
	}
	if len(g.Takes) == 0 && m.now < a.Until {
		t.Fatalf("ask %+v got nothing at %v", a, m.now)
	}
	a.Max -= len(g.Takes)
	m.asks[a.ID] = a
	if g.Over {
		delete(m.asks, a.ID)
	}
	for _, take := range g.Takes {
		k := m.keys[take.Key]
		switch {
		case k == nil || !k.pending || k.due > m.now:
			t.Fatalf("%v: take %+v of a key that has nothing to do: %+v", m.now, take, k)
		case k.take != nil:
			t.Fatalf("%v: take %+v of a key that is taken: %+v", m.now, take, k.take)
		case !m.slots[k.slot].open || take.Slot != k.slot:
			t.Fatalf("%v: take %+v in a slot that is %+v", m.now, take, m.slots[k.slot])
		case take.Deadline > m.deadline || take.Deadline < m.now+m.cfg.MinLength || take.Deadline > m.now+a.Length:
			t.Fatalf("%v: take %+v, but the member's deadline is %v", m.now, take, m.deadline)
		case take.Version != k.version || take.Gone != k.gone || take.Attempt != k.attempts+1 || take.Worker != a.Worker:
			t.Fatalf("%v: take %+v of %+v", m.now, take, k)
		}
		if m.full(take.Key.Kind) {
			t.Fatalf("%v: take %+v beside as many others as may be", m.now, take)
		}
		k.pending = false
		k.take = &modelTake{Take: take, key: k, affine: a.Affine}
		m.takes[take.ID] = k.take
	}
}

// check looks for a worker that waits beside a key that it could have.
func (m *model) check(t *rapid.T) {
	m.act(t)
	for s := range m.slots {
		n := slot.Slot(s)
		if st := m.slots[s]; st.draining && !st.told && !m.busy(n) {
			t.Fatalf("%v: slot %d has drained, and nobody is told", m.now, s)
		}
	}
	ready := 0
	for key, k := range m.keys {
		if !k.pending || k.take != nil || k.due > m.now || !m.slots[k.slot].open {
			continue
		}
		ready++
		if m.deadline-m.now < m.cfg.MinLength || m.full(key.Kind) {
			continue
		}
		for _, a := range m.asks {
			if a.Max > 0 && (len(a.Kinds) == 0 || slices.Contains(a.Kinds, key.Kind)) && m.now > m.affine+m.cfg.Idle {
				t.Fatalf("%v: ask %+v waits beside %s", m.now, a, key)
			}
		}
	}
	m.seesAffine()
	got, taken := 0, 0
	for _, s := range m.q.Stats() {
		got, taken = got+s.Ready, taken+s.Taken
	}
	if got != ready || taken != len(m.takes) {
		t.Fatalf("%v: %d ready and %d taken, want %d and %d", m.now, got, taken, ready, len(m.takes))
	}
}

// full says that no more keys of a kind may be taken.
func (m *model) full(kind string) bool {
	n := 0
	for _, take := range m.takes {
		if take.Key.Kind == kind {
			n++
		}
	}
	return m.cfg.MaxTaken[kind] > 0 && n >= m.cfg.MaxTaken[kind]
}

// seesAffine notes that there are workers that keys may prefer.
func (m *model) seesAffine() {
	for _, a := range m.asks {
		if a.Affine {
			m.affine = m.now
		}
	}
	for _, take := range m.takes {
		if take.affine {
			m.affine = m.now
		}
	}
}

// finish lets a single worker work off everything.
func (m *model) finish(t *rapid.T) {
	for id := range m.asks {
		m.q.Cancel(m.now, id)
	}
	clear(m.asks)
	var all slot.Set
	for s := range m.slots {
		all.Add(slot.Slot(s))
		m.slots[s].open, m.slots[s].draining = true, false
	}
	m.q.Open(m.now, all, 1000)
	for range 10_000 {
		m.expire()
		if len(m.keys) == 0 {
			break
		}
		m.deadline = m.now + 20*time.Second
		m.q.SetDeadline(m.now, m.deadline)
		m.lastAsk++
		m.asks[m.lastAsk] = queue.Ask{ID: m.lastAsk, Worker: "last", Max: 100, Until: m.now + time.Second, Length: time.Second}
		require.NoError(t, m.q.Ask(m.now, m.asks[m.lastAsk]))
		m.act(t)
		for id, take := range m.takes {
			if take.Worker == "last" {
				require.NoError(t, m.q.Done(m.now, id, "last", queue.Result{}))
				m.end(take)
				if take.key.attempts = 0; !take.key.pending {
					delete(m.keys, take.Key)
				}
			}
		}
		m.now += time.Second
		m.act(t)
	}
	if len(m.keys) > 0 {
		t.Fatalf("left for ever: %+v", m.keys)
	}
	for _, s := range m.q.Stats() {
		if s.Ready+s.Delayed+s.Taken > 0 {
			t.Fatalf("left: %+v", s)
		}
	}
}
