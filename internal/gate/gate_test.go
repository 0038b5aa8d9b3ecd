package gate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Duration   { return time.Duration(c.at.Load()) }
func (c *clock) add(d time.Duration)  { c.at.Add(int64(d)) }
func key(name string) gate.Key        { return gate.Key{Queue: "q", Namespace: "ns", Name: name} }
func set(slots ...slot.Slot) slot.Set { return of(slots) }

func of(slots []slot.Slot) slot.Set {
	var out slot.Set
	for _, s := range slots {
		out.Add(s)
	}
	return out
}

// started returns a gate whose slots 1 and 2 are open at epoch 7, with a deadline in 10 s.
func started(t *testing.T) (*gate.Gate, *clock) {
	t.Helper()
	c := &clock{}
	g := gate.New(8, c.now)
	g.SetDeadline(10 * time.Second)
	g.Open(set(1, 2), 7)
	return g, c
}

func enter(t *testing.T, g *gate.Gate, s slot.Slot, name string, gone bool, want gate.Verdict) (context.Context, func()) {
	t.Helper()
	ctx, leave, got := g.Enter(t.Context(), s, key(name), gone)
	if got != want {
		t.Fatalf("Enter(%v, %s, gone=%v) = %v, want %v", s, name, gone, got, want)
	}
	return ctx, leave
}

func TestR5AdmitsOnlyOpenSlots(t *testing.T) {
	g, _ := started(t)
	_, leave := enter(t, g, 1, "a", false, gate.Admitted)
	enter(t, g, 3, "a", false, gate.Refused)
	enter(t, g, 3, "a", true, gate.Refused)
	enter(t, g, 8, "beyond the slots", false, gate.Refused)
	if g.InFlight() != 1 || g.InFlightIn(1) != 1 || g.InFlightIn(2) != 0 {
		t.Errorf("in flight: %d, %d, %d", g.InFlight(), g.InFlightIn(1), g.InFlightIn(2))
	}
	leave()
	leave()
	if g.InFlight() != 0 {
		t.Errorf("in flight after leaving twice: %d", g.InFlight())
	}
	if got := g.OpenSet(); got != set(1, 2) {
		t.Errorf("open: %v", got)
	}
}

func TestR2NothingIsAdmittedFromTheDeadlineOn(t *testing.T) {
	g, c := started(t)
	ctx, leave := enter(t, g, 1, "a", false, gate.Admitted)
	c.add(10*time.Second - 1)
	g.Expire()
	if ctx.Err() != nil {
		t.Fatal("cancelled before the deadline")
	}
	c.add(1)
	enter(t, g, 1, "b", false, gate.Expired)
	if open := g.OpenSet(); g.Owns(1) || !open.Empty() {
		t.Error("owns slots after the deadline")
	}
	g.Expire()
	if !errors.Is(context.Cause(ctx), gate.ErrExpired) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if g.InFlight() != 1 {
		t.Error("a cancelled reconcile is in flight until it leaves")
	}
	leave()
}

func TestOwns(t *testing.T) {
	g, c := started(t)
	_, leave := enter(t, g, 2, "a", false, gate.Admitted)
	defer leave()
	g.Drain(set(2), never, func(slot.Slot) {})
	if !g.Owns(1) || !g.Owns(2) || g.Owns(3) {
		t.Errorf("owns: %v open, %v draining, %v shut", g.Owns(1), g.Owns(2), g.Owns(3))
	}
	c.add(10 * time.Second)
	g.Expire()
	g.SetDeadline(20 * time.Second)
	g.Open(set(2), 7)
	if g.Owns(1) || !g.Owns(2) {
		t.Errorf("after a lapse, owns: %v not opened since, %v opened", g.Owns(1), g.Owns(2))
	}
}

// A slot that is opened at the very deadline has lapsed: a later deadline does not open it.
func TestR13OpenAtTheDeadline(t *testing.T) {
	g, c := started(t)
	c.add(10 * time.Second)
	enter(t, g, 1, "parked", false, gate.Expired)
	if got := g.Open(set(1), 8); len(got) != 0 {
		t.Errorf("gives back %v, which would be refused", got)
	}
	g.SetDeadline(20 * time.Second)
	enter(t, g, 1, "a", false, gate.Expired)
	if got, want := g.Open(set(1), 8), []gate.Key{key("parked"), key("a")}; len(got) != len(want) {
		t.Errorf("gives back %v, want %v", got, want)
	}
}

func TestR5ShutCancels(t *testing.T) {
	g, _ := started(t)
	lost, leave := enter(t, g, 1, "a", false, gate.Admitted)
	kept, _ := enter(t, g, 2, "a", false, gate.Admitted)
	g.Shut(set(1))
	if !errors.Is(context.Cause(lost), gate.ErrLost) || kept.Err() != nil {
		t.Errorf("lost: %v, kept: %v", context.Cause(lost), kept.Err())
	}
	enter(t, g, 1, "a", true, gate.Refused)
	if !g.Stuck(0)[0].Lost && !g.Stuck(0)[1].Lost {
		t.Error("Stuck shows nothing lost")
	}
	leave()
	if g.InFlightIn(1) != 0 {
		t.Error("still in flight")
	}
}

func TestR12EpochReachesTheReconciler(t *testing.T) {
	g, _ := started(t)
	ctx, _ := enter(t, g, 1, "a", false, gate.Admitted)
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	if e, ok := gate.EpochFrom(child); !ok || e != 7 {
		t.Errorf("epoch %d, %v", e, ok)
	}
	if _, ok := gate.EpochFrom(t.Context()); ok {
		t.Error("an epoch out of nowhere")
	}
	g.Shut(set(1))
	<-child.Done()
	g.Open(set(1), 9)
	again, _ := enter(t, g, 1, "a", false, gate.Admitted)
	if e, _ := gate.EpochFrom(again); e != 9 {
		t.Errorf("epoch %d after reopening", e)
	}
}

func TestR6ShutEndsADrain(t *testing.T) {
	g, _ := started(t)
	_, leave := enter(t, g, 1, "a", false, gate.Admitted)
	g.Drain(set(1), never, func(slot.Slot) { t.Error("idle after Shut") })
	enter(t, g, 1, "b", false, gate.Parked)
	g.Shut(set(1))
	leave()
	if parked := g.Open(set(1), 8); len(parked) != 0 || g.Parked() != 0 {
		t.Errorf("Shut keeps parked keys: %v", parked)
	}
}

// A deletion may become pending at the moment at which the queue says that there is none.
func TestR15PendingIsAskedAgainAfterAChange(t *testing.T) {
	g, _ := started(t)
	asked, idle := 0, 0
	g.Drain(set(1), func(slot.Slot) bool {
		asked++
		if asked == 1 {
			_, leave := enter(t, g, 1, "gone", true, gate.Admitted)
			defer leave()
			return false
		}
		return false
	}, func(slot.Slot) { idle++ })
	if asked < 2 || idle != 1 {
		t.Errorf("asked %d times, idle %d times", asked, idle)
	}
}

func TestStuck(t *testing.T) {
	g, c := started(t)
	enter(t, g, 1, "old", false, gate.Admitted)
	c.add(time.Second)
	enter(t, g, 2, "new", false, gate.Admitted)
	g.Hold(2)
	want := []gate.Flight{{Key: key("old"), Slot: 1, For: time.Second}}
	if got := g.Stuck(time.Second); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func never(slot.Slot) bool { return false }

func BenchmarkEnterLeave(b *testing.B) {
	start := time.Now()
	g := gate.New(256, func() time.Duration { return time.Since(start) })
	g.SetDeadline(time.Hour)
	g.Open(slot.SetOf(slot.Range{First: 0, Last: 255}), 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, leave, _ := g.Enter(ctx, slot.Slot(i%256), gate.Key{Name: "x"}, false)
		leave()
	}
}
