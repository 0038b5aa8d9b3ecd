package work_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

type (
	key string
	set = map[key]bool
)

// model says the same of keys as work.Keys does, in one plain map for each thing that it says.
type model struct {
	slot                        map[key]slot.Slot // of what waits
	queued, taken, owed, awaits set
	arrives                     set
	since                       map[key]time.Duration
	flights                     map[key]work.Flight[int]
	claims                      map[key]int
	deleted, opened             map[slot.Slot]time.Duration
	resets                      map[slot.Slot]set
	shown                       map[slot.Slot]bool
	met                         map[slot.Slot]set
	lost                        map[key]slot.Slot
	called                      set
	failedAt                    map[key]slot.Slot
	counted                     set
	streaks                     map[key]work.Streak
	succeeded                   bool
	first                       time.Duration
	failures                    int
	last                        error
}

func newModel() *model {
	return &model{
		slot: map[key]slot.Slot{}, queued: set{}, arrives: set{}, taken: set{}, owed: set{}, awaits: set{}, since: map[key]time.Duration{},
		flights: map[key]work.Flight[int]{}, claims: map[key]int{}, deleted: map[slot.Slot]time.Duration{},
		opened: map[slot.Slot]time.Duration{},
		resets: map[slot.Slot]set{}, shown: map[slot.Slot]bool{}, failedAt: map[key]slot.Slot{}, counted: set{},
		streaks: map[key]work.Streak{}, met: map[slot.Slot]set{}, lost: map[key]slot.Slot{}, called: set{},
	}
}

func (m *model) waiting(k key) bool { return m.queued[k] || m.taken[k] }

func (m *model) waits(k key) bool { return m.waiting(k) || m.owed[k] || m.awaits[k] }

// move has a key wait in a slot.
func (m *model) move(s slot.Slot, k key) {
	if m.slot[k] != s {
		delete(m.owed, k)
	}
	m.slot[k] = s
}

// in returns the keys in a slot of which is says so.
func (m *model) in(s slot.Slot, is func(key) bool) []key {
	var keys []key
	for k, at := range m.slot {
		if at == s && is(k) {
			keys = append(keys, k)
		}
	}
	return sorted(keys)
}

// take takes the keys that wait in some slots out of one of the model's sets.
func (m *model) take(of set, in func(slot.Slot) bool) []key {
	var keys []key
	for k := range of {
		if in(m.slot[k]) {
			keys = append(keys, k)
			delete(of, k)
		}
	}
	return sorted(keys)
}

func (m *model) forget(lost slot.Set) {
	for k, s := range m.slot {
		if lost.Has(s) {
			delete(m.queued, k)
			delete(m.taken, k)
			delete(m.since, k)
			delete(m.arrives, k)
			delete(m.owed, k)
			delete(m.awaits, k)
		}
	}
	for k, s := range m.failedAt {
		if lost.Has(s) {
			m.clear(k)
		}
	}
	for _, s := range lost.Slots() {
		for k := range m.met[s] {
			m.lost[k] = s
		}
		delete(m.met, s)
		delete(m.resets, s)
		delete(m.shown, s)
	}
}

// clear forgets that a key failed, which is no success.
func (m *model) clear(k key) {
	if m.counted[k] && len(m.counted) == 1 {
		m.failures, m.last = 0, nil
	}
	delete(m.counted, k)
	delete(m.streaks, k)
}

func sorted(keys []key) []key {
	slices.Sort(keys)
	return keys
}

// TestKeysAgreeWithAModel has random conversations.
func TestKeysAgreeWithAModel(t *testing.T) {
	const slots = 3
	rapid.Check(t, func(t *rapid.T) {
		k, m := work.NewKeys[key, int](), newModel()
		k.WantLosses(true)
		none := func(key) bool { return false } // there are too few keys for a sweep
		now := time.Duration(0)
		some := rapid.Custom(func(t *rapid.T) key { return key(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key"))) })
		at := rapid.Custom(func(t *rapid.T) slot.Slot { return slot.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot")) })
		several := rapid.Custom(func(t *rapid.T) slot.Set {
			first := at.Draw(t, "first")
			return slot.SetOf(slot.Range{First: first, Last: rapid.SampledFrom([]slot.Slot{first, slots - 1}).Draw(t, "last")})
		})
		same := func(what string, got, want any) {
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: got %v, want %v", what, got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				s, key, ready := at.Draw(t, "in"), some.Draw(t, "of"), rapid.SampledFrom([]time.Duration{0, now}).Draw(t, "ready")
				k.Queue(s, key, ready)
				m.move(s, key)
				m.queued[key] = true
				if m.since[key] == 0 {
					m.since[key] = ready
				}
			},
			"take": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				since, queued := k.Take(s, key)
				same("queued", queued, m.queued[key])
				if m.arrives[key] {
					same("since", since, time.Duration(0))
				} else {
					same("since", since, m.since[key])
				}
				delete(m.arrives, key)
				m.move(s, key)
				delete(m.queued, key)
				delete(m.since, key)
				m.taken[key] = true
			},
			"arrive": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.Arrive(key)
				if m.queued[key] {
					m.arrives[key] = true
				}
			},
			"drop": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				same("had", k.Drop(s, key), m.taken[key])
				m.move(s, key)
				delete(m.taken, key)
			},
			"owe": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				k.Owe(s, key)
				m.move(s, key)
				m.owed[key] = true
			},
			"paid": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.Paid(key)
				delete(m.owed, key)
			},
			"opened": func(t *rapid.T) {
				set := several.Draw(t, "set")
				same("owed", sorted(k.Opened(set, now)), m.take(m.owed, set.Has))
				for _, s := range set.Slots() {
					m.opened[s] = now
				}
			},
			"await": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				k.Await(s, key)
				m.move(s, key)
				m.awaits[key] = true
			},
			"complete": func(t *rapid.T) {
				lacking := several.Draw(t, "lacking")
				want := m.take(m.awaits, func(s slot.Slot) bool { return !lacking.Has(s) })
				same("complete", sorted(k.Complete(lacking.Has)), want)
			},
			"begin": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				if _, flies := m.flights[key]; flies {
					t.Skip("one flight at a time")
				}
				f := work.Flight[int]{Slot: s, Gone: rapid.Bool().Draw(t, "gone"), With: int(now)}
				k.Begin(key, f)
				f.Beside = len(m.flights)
				m.move(s, key)
				m.flights[key] = f
			},
			"result": func(t *rapid.T) {
				key, weak := some.Draw(t, "of"), rapid.Bool().Draw(t, "weak")
				err := rapid.SampledFrom([]error{nil, errors.New("boom")}).Draw(t, "err")
				k.Result(key, err, weak)
				if f, flies := m.flights[key]; flies && !(weak && f.Ended) {
					f.Ended, f.Err = true, err
					m.flights[key] = f
				}
			},
			"end": func(t *rapid.T) {
				key := some.Draw(t, "of")
				f, flew := k.End(key)
				want, flies := m.flights[key]
				same("flew", flew, flies)
				same("flight", f, want)
				delete(m.flights, key)
				if !flew {
					return
				}
				whole, gone := rapid.Bool().Draw(t, "whole"), rapid.Bool().Draw(t, "gone now")
				k.Ended(key, f, now, whole, gone)
				if f.Gone && whole && !(m.queued[key] && m.slot[key] == f.Slot) {
					m.deleted[f.Slot] = now
				}
				if !whole {
					m.shown[f.Slot] = false
				}
				if gone {
					delete(m.resets[f.Slot], key)
				}
				if gone && whole && f.Gone && f.Err == nil {
					delete(m.met[f.Slot], key)
				}
			},
			"claim": func(t *rapid.T) {
				key, item := some.Draw(t, "of"), rapid.IntRange(1, 2).Draw(t, "item")
				if m.claims[key] == 0 {
					m.claims[key] = item
				}
				same("claimed", k.Claim(key, item), m.claims[key] == item)
			},
			"unclaim": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.Unclaim(key)
				delete(m.claims, key)
			},
			"reset": func(t *rapid.T) {
				s, key := at.Draw(t, "in"), some.Draw(t, "of")
				fresh, shown := k.Meet(s, key, none)
				same("fresh", fresh, !m.resets[s][key])
				same("shown", shown, m.shown[s])
				if m.met[s] == nil {
					m.met[s], m.resets[s] = set{}, set{}
				}
				m.met[s][key] = true
				if rapid.Bool().Draw(t, "done") {
					k.Reset(s, key)
					m.resets[s][key], m.shown[s] = true, true
				}
			},
			"silence": func(t *rapid.T) {
				set := several.Draw(t, "set")
				k.Silence(set)
				for s := range slot.Slot(slots) {
					if set.Has(s) {
						clear(m.resets[s])
						delete(m.shown, s)
					}
				}
			},
			"begin a loss": func(t *rapid.T) {
				taboo := some.Draw(t, "not of")
				key, s, found := k.BeginLoss(func(_ slot.Slot, k key) bool { return k != taboo })
				want := 0
				for k := range m.lost {
					if _, flies := m.flights[k]; k != taboo && !flies {
						want++
					}
				}
				if same("found", found, want > 0); !found {
					return
				}
				at, lost := m.lost[key]
				_, flies := m.flights[key]
				if !lost || flies || key == taboo || s != at {
					t.Fatalf("%s of slot %v, lost: %t in %v, in flight: %t, not free: %s", key, s, lost, at, flies, taboo)
				}
				delete(m.lost, key)
				m.called[key] = true
			},
			"end a loss": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.EndLoss(key)
				delete(m.called, key)
			},
			"regain": func(t *rapid.T) {
				key := some.Draw(t, "of")
				_, lost := m.lost[key]
				same("regained", k.Regain(key), lost)
				delete(m.lost, key)
			},
			"drop losses": func(*rapid.T) {
				same("dropped", k.DropLosses(), len(m.lost))
				clear(m.lost)
			},
			"fail": func(t *rapid.T) {
				f := work.Failure{Slot: at.Draw(t, "in"), At: now, Wall: time.Unix(0, int64(now)), Err: errors.New("boom"),
					Text: fmt.Sprint(now), Panicked: rapid.Bool().Draw(t, "panicked")}
				key := some.Draw(t, "of")
				k.Fail(key, f)
				if m.failures++; m.failures == 1 {
					m.first = now
				}
				m.last, m.failedAt[key], m.counted[key] = f.Err, f.Slot, true
				a, known := m.streaks[key]
				if !known {
					a.Since = f.Wall
				}
				a.Slot, a.Failures, a.Last, a.Text = f.Slot, a.Failures+1, f.Wall, f.Text
				if f.Panicked {
					a.Panics++
				}
				m.streaks[key] = a
			},
			"succeed": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.Succeed(key)
				delete(m.streaks, key)
				m.succeeded, m.failures, m.last, m.first = true, 0, nil, 0
				clear(m.counted)
			},
			"cleared": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.Cleared(key)
				m.clear(key)
			},
			"heal": func(t *rapid.T) {
				key := some.Draw(t, "of")
				k.EndStreak(key)
				delete(m.streaks, key)
			},
			"forget": func(t *rapid.T) {
				set := several.Draw(t, "set")
				k.Forget(set)
				m.forget(set)
			},
			"": func(*rapid.T) {
				now++
				size := 0
				oldest := map[slot.Slot]time.Duration{}
				for s := range slot.Slot(slots) {
					same("waiting", sorted(k.Waiting(s)), m.in(s, m.waiting))
					same("undone", sorted(k.Undone(s)), m.in(s, m.waits))
					same("awaiting", sorted(k.Awaiting(s)), m.in(s, func(k key) bool { return m.awaits[k] }))
					same("deleted", k.Deleted(s), m.deleted[s])
					for _, key := range m.in(s, func(k key) bool { return m.since[k] > 0 }) {
						if before, known := oldest[s]; !known || m.since[key] < before {
							oldest[s] = m.since[key]
						}
					}
					size += len(m.met[s])
				}
				size += len(m.lost)
				waiting, called := k.Losses()
				same("losses", []int{waiting, called}, []int{len(m.lost), len(m.called)})
				got := map[slot.Slot]time.Duration{}
				k.Oldest(got)
				same("oldest", got, oldest)
				flights := map[key]work.Flight[int]{}
				k.Flights(func(key key, f work.Flight[int]) { flights[key] = f })
				same("flights", flights, m.flights)
				streaks := map[key]work.Streak{}
				k.Streaks(func(key key, a work.Streak) { streaks[key] = a })
				same("streaks", streaks, m.streaks)
				sum := work.Sum{Succeeded: m.succeeded, Failures: m.failures, Objects: len(m.counted), Err: m.last}
				if sum.Since = m.first; m.failures == 0 {
					sum.Since = k.Sum().Since // it says nothing
				}
				same("sum", k.Sum(), sum)
				for n := range 6 {
					key := key(fmt.Sprint(n))
					f, flies := m.flights[key]
					opened, flying := k.OpenedSince(key)
					same("flying", flying, flies)
					if flies {
						same("opened", opened, m.opened[f.Slot])
					}
					s, known := k.Slot(key)
					same("known", known, m.waits(key) || flies)
					if known {
						same("slot", s, m.slot[key])
					}
					same("in loss", k.InLoss(key), m.called[key])
					same("busy", k.Busy(key), m.waits(key) || flies)
					ready := m.queued[key] && m.since[key] > 0
					same("ready", k.Ready(key), ready)
					same("underway", k.Underway(key), ready || m.taken[key] || flies)
					if m.waits(key) || flies || m.claims[key] != 0 || m.streaks[key].Failures > 0 {
						size++
					}
				}
				same("size", k.Size(), size)
			},
		})
	})
}

// All keys that fail are counted, the errors of some are remembered, and the sum does not count one object twice.
func TestFailuresAreBounded(t *testing.T) {
	const all, explained = 2 * work.ExplainedFailures, work.ExplainedFailures
	k := work.NewKeys[key, int]()
	for range 2 {
		for n := range all {
			k.Fail(key(fmt.Sprint(n)), work.Failure{Err: errors.New("boom"), Text: "boom"})
		}
	}
	if got := k.Sum(); got.Objects != work.CountedFailures || got.Failures != 2*all {
		t.Errorf("%d failures of %d objects, want %d of %d", got.Failures, got.Objects, 2*all, work.CountedFailures)
	}
	streaks, texts := 0, 0
	k.Streaks(func(key key, a work.Streak) {
		if streaks++; a.Failures != 2 {
			t.Errorf("%s failed %d times, want 2", key, a.Failures)
		}
		texts += len(a.Text)
	})
	k.Forget(slot.SetOf(slot.Range{})) // all failed in slot 0
	k.Fail("mine", work.Failure{Slot: 1})
	k.Forget(slot.SetOf(slot.Range{First: 1, Last: 1}))
	if !k.TakeLapsed("mine") || k.TakeLapsed("mine") || k.TakeLapsed("other") {
		t.Error("after many others, a key that failed before its slot was lost is not counted anew, or twice")
	}
	if streaks != all || texts != explained*len("boom") {
		t.Errorf("%d keys fail, and %d bytes explain them; want %d and %d", streaks, texts, all, explained*len("boom"))
	}
}

// What is remembered of objects that come and go does not grow, also if nobody reconciles their deletions.
func TestMetKeysAreBounded(t *testing.T) {
	k := work.NewKeys[key, int]()
	exists := func(k key) bool { return k == "stays" }
	k.Queue(1, "waits", 1)
	for _, of := range []key{"stays", "waits"} {
		k.Meet(1, of, exists)
		k.Reset(1, of)
	}
	for n := range 10_000 {
		k.Meet(1, key(fmt.Sprint(n)), exists)
	}
	if n := k.Size(); n > 200 {
		t.Errorf("%d keys are remembered of two objects, want 200 at most", n)
	}
	for _, of := range []key{"stays", "waits"} {
		if fresh, _ := k.Meet(1, of, exists); fresh {
			t.Errorf("%s is forgotten, although it exists or waits", of)
		}
	}
}

// TestArrivedIsKnown: a worker's key is known to have come with its slot until it is dropped, and a change that comes
// later is none. A flight knows how many others there are.
func TestArrivedIsKnown(t *testing.T) {
	k := work.NewKeys[string, struct{}]()
	k.Queue(1, "a", 1)
	k.Arrive("a")
	if k.Arrived("a") {
		t.Error("it waits, and no worker has it")
	}
	k.Take(1, "a")
	if !k.Arrived("a") {
		t.Error("a worker has it, and it is not known that it came with its slot")
	}
	k.Queue(1, "a", 2) // changed meanwhile
	k.Drop(1, "a")
	k.Take(1, "a")
	if k.Arrived("a") || k.Arrived("b") {
		t.Error("a change counts as come with the slot")
	}
	for beside, key := range []string{"a", "b", "c"} {
		k.Begin(key, work.Flight[struct{}]{Slot: 1})
		k.Flights(func(of string, f work.Flight[struct{}]) {
			if of == key && f.Beside != beside {
				t.Errorf("%s is in flight beside %d, want %d", key, f.Beside, beside)
			}
		})
	}
}
