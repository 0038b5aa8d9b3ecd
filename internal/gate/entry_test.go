package gate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func extend(of context.Context, t *testing.T) (context.Context, func() bool) {
	t.Helper()
	ctx, leave, err := gate.Extend(of)
	require.NoError(t, err)
	return ctx, leave
}

// R6: what a reconcile has left running ends before its slot is handed over. Until then it is not in flight.
func TestR6TasksEndBeforeAHandover(t *testing.T) {
	g, c := started(t)
	by, leave := enter(t, g, 1, "a", false, gate.Admitted)
	ctx, leaveTask := extend(by, t)
	leave()
	c.add(time.Second)
	if epoch, ok := gate.EpochFrom(ctx); ctx.Err() != nil || !ok || epoch != 7 {
		t.Errorf("%v, epoch %d, after the reconcile", ctx.Err(), epoch)
	}
	if g.InFlight() != 0 || len(g.Stuck(0)) != 0 {
		t.Errorf("%d in flight, stuck %v", g.InFlight(), g.Stuck(0))
	}
	idle := 0
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	if cause := context.Cause(ctx); !errors.Is(cause, gate.ErrHandover) {
		t.Fatalf("it ends with %v", cause)
	}
	c.add(3 * time.Second)
	want := []gate.Flight{{Key: key("a"), Slot: 1, For: 3*time.Second + 1, Lost: true, Task: true}}
	if got := g.Stuck(time.Second); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if idle != 0 || g.InFlightIn(1) != 1 {
		t.Fatalf("drained with %d in flight", g.InFlightIn(1))
	}
	if again := leaveTask(); again || idle != 1 || g.InFlight() != 0 {
		t.Errorf("again = %v, idle %d, %d in flight", again, idle, g.InFlight())
	}
	leaveTask()
	if got := g.Open(set(1), 8); !cmp.Equal(got, []gate.Key{key("a")}) {
		t.Errorf("the slot stays, with the keys %v", got)
	}
}

// A task that takes long to end shuts no keys out meanwhile, its own included.
func TestTasksThatTakeLongToEnd(t *testing.T) {
	g, c := started(t)
	by, leave := enter(t, g, 1, "a", false, gate.Admitted)
	_, leaveTask := extend(by, t)
	leave()
	idle := 0
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	for range 8 {
		c.add(time.Second)
		g.SetDeadline(c.now() + 10*time.Second)
		g.Review(set(1))
	}
	for _, name := range []string{"a", "b"} {
		_, leave = enter(t, g, 1, name, false, gate.Admitted)
		leave()
	}
	leaveTask()
	if idle != 1 {
		t.Error("not drained")
	}
}

// R6: while a reconcile that takes long holds a slot back, the tasks of other objects go on, and begin. A leaver ends
// them.
func TestR6TasksGoOnInASoftDrain(t *testing.T) {
	for _, cut := range []bool{false, true} {
		g, c := started(t)
		g.SetDeadline(time.Hour)
		_, leaveSlow := enter(t, g, 1, "slow", false, gate.Admitted)
		c.add(time.Second)
		by, leave := enter(t, g, 1, "a", false, gate.Admitted)
		old, leaveOld := extend(by, t)
		leave()
		idle := 0
		g.Drain(set(1), never, func(slot.Slot) { idle++ })
		for range 20 {
			c.add(10 * time.Second)
			g.Review(set(1))
		}
		by, leave = enter(t, g, 1, "b", false, gate.Admitted)
		fresh, leaveFresh := extend(by, t)
		leave()
		if old.Err() != nil || fresh.Err() != nil {
			t.Fatalf("%v and %v, while a reconcile holds the slot back", context.Cause(old), context.Cause(fresh))
		}
		if cut {
			g.Cut(set(1), time.Second)
		} else {
			leaveSlow()
		}
		for _, ctx := range []context.Context{old, fresh} {
			if cause := context.Cause(ctx); !errors.Is(cause, gate.ErrHandover) {
				t.Errorf("cut: %t, ends with %v", cut, cause)
			}
		}
		leaveSlow()
		if running, ending := g.Tasks(); idle != 0 || running != 0 || ending != 2 {
			t.Errorf("idle %d, %d tasks running, %d ending", idle, running, ending)
		}
		leaveOld()
		leaveFresh()
		if idle != 1 {
			t.Error("not drained")
		}
	}
}

// The tasks of an object that was deleted end, and the key comes again, since there may be a namesake meanwhile.
func TestTasksOfDeletedObjects(t *testing.T) {
	g, _ := started(t)
	by, leave := enter(t, g, 1, "a", false, gate.Admitted)
	ctx, leaveTask := extend(by, t)
	leave()
	g.EndTasks(key("b"), nil)
	g.EndTasks(key("a"), func(task context.Context) bool { return task == ctx })
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	g.EndTasks(key("a"), nil)
	if cause := context.Cause(ctx); !errors.Is(cause, gate.ErrDeleted) {
		t.Errorf("it ends with %v", cause)
	}
	if again := leaveTask(); !again {
		t.Error("nobody is told that the task has ended")
	}
	if running, ending := g.Tasks(); running != 0 || ending != 0 || g.InFlight() != 0 {
		t.Errorf("%d tasks running, %d ending, %d in flight", running, ending, g.InFlight())
	}
}

func TestTasksOfLostSlots(t *testing.T) {
	g, c := started(t)
	one, leaveOne := enter(t, g, 1, "a", false, gate.Admitted)
	lost, leaveLost := extend(one, t)
	two, leaveTwo := enter(t, g, 2, "b", false, gate.Admitted)
	late, leaveLate := extend(two, t)
	g.Shut(set(1))
	c.add(10 * time.Second)
	if !g.Expire() {
		t.Error("no lapse")
	}
	if cause := context.Cause(lost); !errors.Is(cause, gate.ErrLost) {
		t.Errorf("lost: %v", cause)
	}
	if cause := context.Cause(late); !errors.Is(cause, gate.ErrExpired) {
		t.Errorf("expired: %v", cause)
	}
	ends := map[error]func() bool{}
	for cause, of := range map[error]context.Context{gate.ErrLost: one, gate.ErrExpired: two} {
		var ctx context.Context
		if ctx, ends[cause] = extend(of, t); !errors.Is(context.Cause(ctx), cause) {
			t.Errorf("begun in a slot that is not open: %v, want %v", context.Cause(ctx), cause)
		}
	}
	if _, _, err := gate.Extend(t.Context()); !errors.Is(err, gate.ErrNotInFlight) {
		t.Errorf("%v without a reconcile", err)
	}
	leaveOne()
	leaveTwo()
	if _, _, err := gate.Extend(two); !errors.Is(err, gate.ErrNotInFlight) {
		t.Errorf("%v after the reconcile", err)
	}
	if g.InFlight() != 4 {
		t.Errorf("%d in flight", g.InFlight())
	}
	for _, end := range ends {
		if end() {
			t.Error("again, in a slot that is not open")
		}
	}
	if leaveLost() || leaveLate() || g.InFlight() != 0 {
		t.Errorf("%d in flight at the end", g.InFlight())
	}
	g.SetDeadline(20 * time.Second)
	if got := g.Open(set(1, 2), 9); !cmp.Equal(got, []gate.Key{key("b")}) {
		t.Errorf("keys %v", got)
	}
}
