package keeper

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// TestClockIsSet: a wall clock that is set forward ends no take before its worker's count does, and no take promises
// more than the member's deadline allows after that.
func TestClockIsSet(t *testing.T) {
	begun := time.Now()
	var ahead time.Duration
	d, err := NewOf(adapter.Parts{
		Slots: 8, Key: slot.KeyName, Late: func() time.Duration { return time.Since(begun) + ahead },
		Reported: func() bool { return true },
	}, Options{Kinds: []Kind{{Kind: schema.GroupKind{Kind: "Pod"}}}, Logger: logr.Discard()})
	require.NoError(t, err)
	var all slot.Set
	for s := range slot.Slot(8) {
		all.Add(s)
	}
	d.SetDeadline(d.Now() + 10*time.Second)
	d.Open(all, 1)
	change := func(name string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.change(queue.Change{Key: queue.Key{Kind: "Pod", Name: name}})
	}
	take := func() (queue.Take, time.Duration) {
		takes, err := d.Take(t.Context(), Ask{Worker: "w", Max: 1})
		if err != nil || len(takes) == 0 {
			return queue.Take{}, 0
		}
		return takes[0], takes[0].Deadline - d.Now()
	}
	change("a")
	a, left := take()
	if left < 9*time.Second || left > 10*time.Second {
		t.Fatalf("a take lasts %v", left)
	}
	ahead = 4 * time.Second
	change("b")
	if b, left := take(); left < 5*time.Second || left > 6*time.Second {
		t.Errorf("after a step of 4s %s lasts %v", b.Key, left)
	}
	ahead = time.Minute
	if again, left := take(); left != 0 {
		t.Errorf("%s was handed out again, for %v, before its worker's time was over", again.Key, left)
	}
	if e, err := d.Extend(a.ID, "w", time.Minute); err != nil || e.Deadline > d.Now() {
		t.Errorf("a take was extended past the member's deadline: %+v, %v, now %v", e, err, d.Now())
	}
	d.SetDeadline(d.Now() + 20*time.Second)
	if e, err := d.Extend(a.ID, "w", 15*time.Second); err != nil || e.Deadline-d.Now() < 14*time.Second {
		t.Errorf("%+v, %v", e, err)
	}
}
