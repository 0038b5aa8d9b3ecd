package gate

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
)

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
