package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// testKeeper checks the order of calls, and says of each slot whether it may be worked on.
type testKeeper struct {
	m      *labMember
	others func() []*testKeeper

	mu             sync.Mutex
	loaded, opened slot.Set
	warmed         slot.Set
	epochs         map[slot.Slot]uint64
	loads          int
	gone           []table.Gone // that came with loads
	deadline       time.Duration
	flying         time.Duration // for how long each slot that drains has something in flight
	leave          []table.Gone  // what each slot leaves
	draining       map[slot.Slot]*time.Timer
	ends           map[slot.Slot]time.Time // when what was in flight at a Shut ends
	fails          int                     // how many loads fail
}

var _ controllers.Keeper = (*testKeeper)(nil)

func (k *testKeeper) Address() string { return "" }

func (k *testKeeper) Kinds() []string { return []string{"Pod"} }

func (k *testKeeper) Warm(_ context.Context, set slot.Set) error {
	time.Sleep(100 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails > 0 {
		k.fails--
		return errors.New("injected")
	}
	k.warmed = k.warmed.Union(set)
	return nil
}

func (k *testKeeper) Load(_ context.Context, set slot.Set, _ bool, gone []table.Gone) error {
	time.Sleep(100 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails > 0 {
		k.fails--
		return errors.New("injected")
	}
	k.loads++
	k.loaded = k.loaded.Union(set)
	k.gone = append(k.gone, gone...)
	return nil
}

func (k *testKeeper) Open(set slot.Set, epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if missing := set.Minus(k.loaded); !missing.Empty() {
		k.m.lab.t.Errorf("%s: slots %v are opened that were not loaded", k.m.pod, missing)
	}
	for _, s := range set.Slots() {
		k.epochs[s] = epoch
		k.callOff(s)
	}
	k.opened = k.opened.Union(set)
}

func (k *testKeeper) CatchUp(context.Context, slot.Set) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

func (k *testKeeper) callOff(s slot.Slot) {
	if timer := k.draining[s]; timer != nil {
		timer.Stop()
		delete(k.draining, s)
	}
}

func (k *testKeeper) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	var warm slot.Set
	others := k.others()
	for _, o := range others {
		if o != k {
			o.mu.Lock()
			warm = warm.Union(o.warmed)
			o.mu.Unlock()
		}
	}
	if cold := set.Minus(warm); len(others) > 0 && !cold.Empty() {
		k.m.lab.t.Errorf("%s drains slots %v that nobody follows", k.m.pod, cold)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range set.Slots() {
		k.draining[s] = time.AfterFunc(k.flying, func() {
			k.mu.Lock()
			k.opened.Remove(s) // nothing is in flight from now on
			gone := slices.DeleteFunc(slices.Clone(k.leave), func(g table.Gone) bool { return g.Slot != s })
			k.mu.Unlock()
			idle(s, gone)
		})
	}
}

func (k *testKeeper) Shut(set slot.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range set.Slots() {
		if k.callOff(s); k.opened.Has(s) {
			k.ends[s] = time.Now().Add(k.flying)
		}
	}
	k.loaded, k.opened, k.warmed = k.loaded.Minus(set), k.opened.Minus(set), k.warmed.Minus(set)
}

func (k *testKeeper) SetDeadline(at time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = at
}

func (k *testKeeper) Flights(older time.Duration) []gate.Flight {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.draining) == 0 || older > k.flying {
		return nil
	}
	return []gate.Flight{{Key: gate.Key{Queue: "Pod", Name: "x"}, For: k.flying}}
}

// works returns the slots that may be worked on now.
func (k *testKeeper) works() slot.Set {
	late := k.m.Engine.Adapt(adapter.Grant()).Late()
	k.mu.Lock()
	defer k.mu.Unlock()
	if late >= k.deadline {
		return slot.Set{}
	}
	set := k.opened
	for s, end := range k.ends {
		if time.Now().Before(end) {
			set.Add(s)
		}
	}
	return set
}

// A keeper is told of every slot: it is complete before a slot opens, and no slot opens while another member's keeper
// has something in flight in it.
func TestKeeper(t *testing.T) {
	inLab(t, func(l *lab) {
		var keepers []*testKeeper
		l.setup = func(m *labMember) {
			k := &testKeeper{m: m, epochs: map[slot.Slot]uint64{}, draining: map[slot.Slot]*time.Timer{},
				ends: map[slot.Slot]time.Time{}, fails: 1, others: func() []*testKeeper { return keepers }}
			m.Engine.Adapt(adapter.Grant()).Keep(k)
			keepers = append(keepers, k)
		}
		// watch looks for overlaps for a while, and returns for how long no member has worked on a slot.
		watch := func(d time.Duration) (gap time.Duration) {
			var since [256]time.Time
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				var all slot.Set
				for _, k := range keepers {
					works := k.works()
					if both := all.Intersect(works); !both.Empty() {
						l.t.Fatalf("%v: several members work on slots %v", time.Now(), both)
					}
					all = all.Union(works)
				}
				for s := range since {
					switch {
					case all.Has(slot.Slot(s)): // 256 slots
						since[s] = time.Time{}
					case since[s].IsZero():
						since[s] = time.Now()
					default:
						gap = max(gap, time.Since(since[s]))
					}
				}
			}
			return gap
		}
		full := func(when string, want ...int) {
			l.t.Helper()
			var got []int
			for _, k := range keepers {
				works := k.works()
				got = append(got, works.Len())
			}
			if !slices.Equal(got, want) {
				l.t.Errorf("%s: members work on %v slots, want %v", when, got, want)
			}
		}
		l.startOf("web-0", nil)
		l.wait(time.Minute)
		full("one member", 256)
		l.startOf("web-1", nil)
		if gap := watch(time.Minute); gap > time.Second {
			l.t.Errorf("a join left a slot alone for %v", gap)
		}
		full("two members", 128, 128)
		if s := l.members[0].Status(); s.InFlight != 0 || len(s.Findings) != 0 {
			l.t.Errorf("status %+v", s)
		}
		// What is in flight holds its slot, and deletions go along.
		leaver := keepers[1]
		leaver.mu.Lock()
		moved := leaver.opened.Slots()[3]
		gone := table.Gone{Slot: moved, Kind: "Pod", Namespace: "a", Name: "b"}
		leaver.flying, leaver.leave = 3*time.Second, []table.Gone{gone}
		leaver.mu.Unlock()
		go l.members[1].leave()
		if gap := watch(20 * time.Second); gap < 0 || gap > time.Second {
			l.t.Errorf("a member that left left a slot alone for %v", gap)
		}
		full("one left", 256, 0)
		if got := fmt.Sprint(keepers[0].gone); got != fmt.Sprint([]table.Gone{gone}) {
			l.t.Errorf("deletions %v came along, want %v", got, gone)
		}
		l.startOf("web-2", nil)
		watch(time.Minute)
		full("another joined", 128, 0, 128)
		l.members[0].crash()
		o := l.members[0].cfg
		if gap := watch(2 * time.Minute); gap < o.FenceDelay || gap > 2*o.LeaseDuration+o.FenceDelay {
			l.t.Errorf("a crash left a slot alone for %v", gap)
		}
		full("one died", 0, 0, 256)
		if epoch := keepers[2].epochs[moved]; epoch <= leaver.epochs[moved] {
			l.t.Errorf("epoch %d follows %d", epoch, leaver.epochs[moved])
		}
		keepers = nil // the last one leaves its slots to nobody
	})
}
