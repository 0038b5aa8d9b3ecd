package labeller_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
)

// TestPermit: nothing is asked without permission, all of it stops at its end, and begins with a list when it comes
// back.
func TestPermit(t *testing.T) {
	f := newFake(t)
	f.put("one", nil)
	var allowed atomic.Bool
	var inside, most atomic.Int32
	permit := func(ctx context.Context) (context.Context, func(), bool) {
		if !allowed.Load() {
			return nil, nil, false
		}
		most.Store(max(most.Load(), inside.Add(1)))
		return ctx, func() { inside.Add(-1) }, true
	}
	start(t, f.config(), labeller.Options{Permit: permit, QPS: 50, Burst: 1})
	eventually(t, "the permissions are checked", func() bool { return len(f.asked("review")) == 3 })
	<-time.After(600 * time.Millisecond)
	if asked := slices.Concat(f.asked("list"), f.asked("watch"), f.asked("patch")); len(asked) > 0 {
		t.Fatalf("without permission: %v", asked)
	}
	allowed.Store(true)
	eventually(t, "labelled", f.labelled)
	eventually(t, "watches", func() bool { return f.watches() == 1 })
	f.fill(100)
	eventually(t, "some are labelled", func() bool { return f.wrong() < 90 })
	allowed.Store(false)
	took := eventually(t, "the watch ends and no batch is left",
		func() bool { return f.watches() == 0 && inside.Load() == 0 })
	t.Logf("stopped %v after the permission", took)
	patches, lists := len(f.asked("patch")), len(f.asked("list !"))
	if f.wrong() == 0 {
		t.Error("the whole backlog was worked on without permission")
	}
	<-time.After(600 * time.Millisecond)
	if n := len(f.asked("patch")); n != patches {
		t.Errorf("%d patches after the end", n-patches)
	}
	allowed.Store(true)
	eventually(t, "labelled", f.labelled)
	if n := len(f.asked("list !")); n <= lists {
		t.Error("no fresh list")
	}
}

// TestPermitByGate: a handover of the labeller's duty waits for a batch, not for the backlog.
func TestPermitByGate(t *testing.T) {
	f := newFake(t)
	f.fill(200)
	begun := time.Now()
	g := gate.New(1, func() time.Duration { return time.Since(begun) })
	g.SetDeadline(time.Hour)
	duty := slot.SetOf(slot.Range{})
	permit := func(ctx context.Context) (context.Context, func(), bool) {
		ctx, leave, verdict := g.Enter(ctx, 0, gate.Key{Queue: "labeller"}, false)
		return ctx, leave, verdict == gate.Admitted
	}
	start(t, f.config(), labeller.Options{Permit: permit, QPS: 100, Burst: 1, ScanPeriod: never})
	g.Open(duty, 1)
	eventually(t, "some are labelled", func() bool { return f.wrong() < 190 })
	idle := make(chan struct{})
	g.Drain(duty, func(slot.Slot) bool { return false }, func(slot.Slot) { close(idle) })
	select {
	case <-idle:
	case <-time.After(5 * time.Minute):
		t.Fatal("the drain does not end")
	}
	patches, left := len(f.asked("patch")), f.wrong()
	eventually(t, "the watch ends", func() bool { return f.watches() == 0 })
	if n := len(f.asked("patch")); n != patches || left == 0 {
		t.Errorf("%d patches after the drain, %d objects left", n-patches, left)
	}
	g.Open(duty, 2)
	eventually(t, "the rest is labelled", f.labelled)
}
