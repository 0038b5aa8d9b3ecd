package gate

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
)

// The load of a slot is the number of workers that its keys keep busy, whether reconciles are short or long, and
// whether they have ended yet. It follows a change within some minutes, and begins anew when the slot comes back.
func TestLoads(t *testing.T) {
	now := time.Duration(0)
	g := New(4, func() time.Duration { return now })
	g.SetDeadline(math.MaxInt64)
	var all slot.Set
	all.AddRange(slot.Range{First: 0, Last: 3})
	g.Open(all, 1)
	enter := func(s slot.Slot, name string) (leave func()) {
		_, leave, verdict := g.Enter(context.Background(), s, Key{Name: name}, false)
		if verdict != Admitted {
			t.Fatal(verdict)
		}
		return leave
	}
	long, second := enter(2, "a"), enter(2, "b") // two that last
	hold := g.Hold(1)                            // no worker waits for it
	spend := func(length time.Duration) {
		for end := now + length; now < end; {
			leave := enter(0, "short") // 10 ms of 40
			now += 10 * time.Millisecond
			leave()
			now += 30 * time.Millisecond
		}
	}
	near := func(s slot.Slot, want float64) {
		t.Helper()
		if got := g.Loads()[s]; math.Abs(got-want) > 0.01+0.03*want {
			t.Errorf("after %v: load of slot %d is %.3f, want %.3f", now, s, got, want)
		}
	}
	spend(time.Second)
	near(2, 2*1.0/20) // too young to tell
	spend(30 * time.Second)
	near(0, 0.25)
	near(2, 2)
	near(1, 0)
	near(3, 0)
	long()
	second()
	spend(2 * time.Minute)
	near(0, 0.25)
	near(2, 2/math.E*0.228/0.718) // what was until then weighs e^-1 of its 22.8 %, of 71.8 % in all
	spend(20 * time.Minute)
	near(2, 0)
	g.Shut(all)
	if n := len(g.Loads()); n > 0 {
		t.Errorf("%d slots that are shut have a load", n)
	}
	g.Open(all, 2)
	if n := len(g.Loads()); n > 0 {
		t.Errorf("%d slots that have just come have a load", n)
	}
	hold()
}

// What is in flight while a slot goes and comes back is counted once, and to its end.
func TestLoadOfALostSlot(t *testing.T) {
	now := time.Duration(0)
	g := New(1, func() time.Duration { return now })
	g.SetDeadline(math.MaxInt64)
	all := slot.Count(1).All()
	g.Open(all, 1)
	_, leave, _ := g.Enter(context.Background(), 0, Key{Name: "a"}, false)
	g.Shut(all)
	now += time.Minute
	g.Open(all, 2)
	now += time.Minute
	if got := g.Loads()[0]; math.Abs(got-1) > 0.01 {
		t.Errorf("load %.3f while a worker is busy all the time, want 1", got)
	}
	leave()
	leave()
	if g.slots[0].workers != 0 {
		t.Errorf("%d workers are busy after all have left", g.slots[0].workers)
	}
}

// Of many keys those that keep most workers busy are named, with about what they do; what was long ago is forgotten,
// and what is in slots that are gone is not named.
func TestHottest(t *testing.T) {
	now := time.Duration(0)
	g := New(4, func() time.Duration { return now })
	g.SetDeadline(math.MaxInt64)
	all := slot.SetOf(slot.Range{First: 0, Last: 3})
	g.Open(all, 1)
	reconcile := func(name string, s slot.Slot, took time.Duration) {
		_, leave, verdict := g.Enter(context.Background(), s, Key{Queue: "q", Name: name}, false)
		if verdict != Admitted {
			t.Fatal(verdict)
		}
		now += took
		leave()
	}
	if got := g.Hottest(5); len(got) > 0 {
		t.Errorf("%v, of none", got)
	}
	// Rounds of 10 s: "hot" takes 3 s, "warm" 1 s, and 1,000 others a millisecond each.
	rounds := func(n int) {
		for range n {
			end := now + 10*time.Second
			reconcile("hot", 1, 3*time.Second)
			reconcile("warm", 2, time.Second)
			for i := range 1000 {
				reconcile(fmt.Sprint(i), 3, time.Millisecond)
			}
			now = end
		}
	}
	near := func(want ...HotKey) {
		t.Helper()
		got := g.Hottest(len(want))
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range want {
			if got[i].Key.Name != want[i].Key.Name || got[i].Slot != want[i].Slot || math.Abs(got[i].Workers-want[i].Workers) > 0.02 {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
	}
	hot := func(name string, s slot.Slot, workers float64) HotKey {
		return HotKey{Key{Queue: "q", Name: name}, s, workers}
	}
	rounds(3)
	near(hot("hot", 1, 0.3), hot("warm", 2, 0.1))
	rounds(1000) // sums are scaled down meanwhile
	near(hot("hot", 1, 0.3), hot("warm", 2, 0.1))
	for range 200 {
		now += 9 * time.Second
		reconcile("new", 0, time.Second)
	}
	near(hot("new", 0, 0.1))
	if got := g.Hottest(9); len(got) > 1 {
		t.Errorf("%v: what was half an hour ago counts", got)
	}
	g.Shut(all)
	if got := g.Hottest(9); len(got) > 0 {
		t.Errorf("%v, of slots that are shut", got)
	}
}

func BenchmarkHottest(b *testing.B) {
	var h hottest
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i] = Key{Queue: "website", Namespace: "team-a", Name: fmt.Sprint("website-", i)}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.add(time.Duration(i)*time.Millisecond, keys[i%len(keys)], 1, time.Millisecond)
	}
}
