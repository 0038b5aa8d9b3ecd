package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// R15: a drain does not end once the deadline has passed, whether somebody has looked at that or not: a deletion that
// was held back by it counts as reconciled by nobody.
func TestR15DrainsEndWithTheDeadline(t *testing.T) {
	g, c := started(t)
	waits := true
	g.Drain(set(1), func(slot.Slot) bool { return waits }, func(slot.Slot) { t.Error("idle after the deadline") })
	c.add(time.Hour)
	enter(t, g, 1, "deleted", true, gate.Expired)
	waits = false // it is owed to the slot
	g.Recheck(1)
	if !g.Expire() {
		t.Error("the slot has not lapsed")
	}
	g.Recheck(1)
}

// R6: where what is in flight takes longer than expected, what was parked meanwhile goes on.
func TestR6HardDrainGivesWay(t *testing.T) {
	g, c := started(t)
	idle := 0
	_, leave := enter(t, g, 1, "a", false, gate.Admitted)
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	enter(t, g, 1, "b", false, gate.Parked)
	c.add(300 * time.Millisecond)
	if parked, left := g.Review(set(1)); len(parked) != 0 || !left {
		t.Errorf("after a moment: %v go on, draining %v; want none yet", parked, left)
	}
	c.add(300 * time.Millisecond)
	parked, left := g.Review(set(1))
	if want := []gate.Key{key("b")}; !cmp.Equal(parked, want) || !left {
		t.Errorf("later: %v go on, draining %v; want %v", parked, left, want)
	}
	if again, _ := g.Review(set(1)); len(again) != 0 {
		t.Errorf("%v go on twice", again)
	}
	_, leaveB := enter(t, g, 1, "b", false, gate.Admitted)
	leaveB()
	leave()
	if idle != 1 {
		t.Errorf("idle called %d times, want 1", idle)
	}
	if _, left := g.Review(set(1)); left {
		t.Error("still draining")
	}
}

// R6: keys whose reconciles are known to take long are admitted if they end before what holds the slot back anyway.
func TestR6KnownLongKeysWait(t *testing.T) {
	g, c := started(t)
	g.SetDeadline(time.Hour)
	took := func(name string, d time.Duration) {
		_, leave := enter(t, g, 1, name, false, gate.Admitted)
		c.add(d)
		leave()
	}
	took("minute", time.Minute)
	took("second", time.Second)
	took("10 s", 10*time.Second)
	for range 20 {
		took("quick", 0)
	}
	_, leaveTen := enter(t, g, 1, "10 s", false, gate.Admitted)
	g.Drain(set(1), never, func(slot.Slot) {})
	enter(t, g, 1, "minute", false, gate.Parked)
	_, leaveSecond := enter(t, g, 1, "second", false, gate.Admitted)
	_, leaveQuick := enter(t, g, 1, "quick", false, gate.Admitted)
	leaveQuick()
	c.add(time.Second)
	leaveSecond()
	c.add(8500 * time.Millisecond)
	enter(t, g, 1, "second", false, gate.Parked)
	leaveTen()
	if got := g.Open(set(1), 7); len(got) != 2 {
		t.Errorf("parked: %v, want two", got)
	}
}

// R6: a key that turns out to take long, and was admitted while the slot drained, does not stop the others either.
func TestR6LateLongReconcileLetsOthersGoOn(t *testing.T) {
	g, c := started(t)
	g.SetDeadline(time.Hour)
	for range 3 {
		_, leave := enter(t, g, 1, "other", false, gate.Admitted)
		leave()
	}
	idle := false
	_, leaveFirst := enter(t, g, 1, "first", false, gate.Admitted)
	c.add(time.Second)
	g.Drain(set(1), never, func(slot.Slot) { idle = true })
	c.add(10 * time.Second)
	_, leaveSecond := enter(t, g, 1, "second", false, gate.Admitted)
	c.add(10 * time.Second)
	leaveFirst()
	enter(t, g, 1, "other", false, gate.Parked)
	c.add(600 * time.Millisecond)
	if parked, _ := g.Review(set(1)); len(parked) != 1 {
		t.Fatalf("%v go on after half a second, want one", parked)
	}
	for range 10 {
		_, leave := enter(t, g, 1, "other", false, gate.Admitted)
		c.add(time.Second)
		leave()
		g.Review(set(1))
	}
	leaveSecond()
	if !idle {
		t.Error("not idle though nothing is in flight")
	}
}

// R6: where most reconciles of a slot take long, those of unknown keys are expected to, or the slot would never move.
func TestR6SlowSlotsDrain(t *testing.T) {
	g, c := started(t)
	g.SetDeadline(time.Hour)
	for n := range 10 {
		_, leave := enter(t, g, 1, fmt.Sprint(n), false, gate.Admitted)
		c.add(2 * time.Second)
		leave()
	}
	_, leave := enter(t, g, 1, "0", false, gate.Admitted)
	c.add(time.Second)
	idle := false
	g.Drain(set(1), never, func(slot.Slot) { idle = true })
	enter(t, g, 1, "unknown", false, gate.Parked)
	leave()
	if !idle {
		t.Error("not idle")
	}
}

// R6, R9: a leaver ends what takes long. Deletions are not cut short: nobody else knows of them.
func TestR6CutsWhatTakesLong(t *testing.T) {
	g, c := started(t)
	long, leaveLong := enter(t, g, 1, "long", false, gate.Admitted)
	gone, leaveGone := enter(t, g, 1, "gone", true, gate.Admitted)
	stays, leaveStays := enter(t, g, 2, "stays", false, gate.Admitted)
	defer leaveStays()
	c.add(2 * time.Second)
	young, leaveYoung := enter(t, g, 1, "young", false, gate.Admitted)
	idle := false
	g.Drain(set(1), never, func(slot.Slot) { idle = true })
	g.Cut(set(1, 2), time.Second)
	if cause := long.Err(); cause == nil || !gate.CutShort(long) {
		t.Errorf("the reconcile that takes long goes on, cause %v", cause)
	}
	if err := errors.Join(gone.Err(), stays.Err(), young.Err()); err != nil {
		t.Errorf("cut short as well: a deletion (%v), what does not drain (%v), what is new (%v)", gone.Err(), stays.Err(), young.Err())
	}
	leaveLong()
	leaveGone()
	if idle {
		t.Error("idle with something in flight")
	}
	leaveYoung()
	if !idle {
		t.Error("not idle")
	}
	if got, want := g.Open(set(1), 7), []gate.Key{key("long")}; !cmp.Equal(got, want) {
		t.Errorf("the slot stays: %v are reconciled again, want %v", got, want)
	}
}

// R15: a drain that leaves deletions waits for none and admits none, though what is in flight ends first.
func TestR15DrainsLeaveDeletions(t *testing.T) {
	g, c := started(t)
	g.Open(set(3), 7)
	idle := 0
	always := func(slot.Slot) bool { return true }
	ctx, leave := enter(t, g, 1, "long", true, gate.Admitted)
	g.Drain(set(1, 2), always, func(slot.Slot) { idle++ })
	_, leaveGone := enter(t, g, 1, "gone", true, gate.Admitted)
	leaveGone()
	if !g.AdmitsGone(1) || idle != 0 {
		t.Errorf("a deletion is admitted: %v, %d slots idle; want it, and none", g.AdmitsGone(1), idle)
	}
	g.LeaveGone(set(1, 2, 3))
	if g.AdmitsGone(1) || g.AdmitsGone(2) || !g.AdmitsGone(3) || idle != 1 {
		t.Errorf("%d slots idle, want one: the other has something in flight", idle)
	}
	enter(t, g, 1, "gone", true, gate.Parked)
	c.add(time.Second)
	g.Review(set(1)) // soft again: others go on
	_, leaveOther := enter(t, g, 1, "other", false, gate.Admitted)
	leaveOther()
	if parked, _ := g.Review(set(1)); len(parked) != 0 {
		t.Errorf("%v would go round in circles", parked)
	}
	g.Cut(set(1), time.Second)
	if !errors.Is(context.Cause(ctx), gate.ErrHandover) {
		t.Errorf("the deletion in flight ended because of %v", context.Cause(ctx))
	}
	if leave(); idle != 2 {
		t.Errorf("%d slots idle, want both", idle)
	}
	if parked := g.Open(set(1), 7); len(parked) != 2 {
		t.Errorf("%v come back where the slot stays, want both deletions", parked)
	}
	_, leave = enter(t, g, 1, "gone", true, gate.Admitted)
	leave()
}
