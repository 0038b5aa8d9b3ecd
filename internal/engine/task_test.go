package engine

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// An object whose goroutine had to end is reconciled again if its slot stays.
func TestGoroutinesOfSlotsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		defer r.closeStore()
		again := make(chan types.NamespacedName, 1)
		c := testController(t, r, "test", schema.GroupKind{Kind: "ConfigMap"},
			func(keys []types.NamespacedName, _ work.Priority) { again <- keys[0] })
		key := types.NamespacedName{Namespace: "a", Name: "a"}
		set := slot.SetOf(slot.Range{First: slotOf(r, key), Last: slotOf(r, key)})
		openSlots(r, set)
		ctx, ok := c.Admit(t.Context(), key)
		if !ok {
			t.Fatal("not admitted")
		}
		end := make(chan struct{})
		require.NoError(t, work.Start(ctx, func(ctx context.Context) { <-ctx.Done(); <-end }))
		c.Done(key)
		if err := work.Start(ctx, func(context.Context) { t.Error("it runs") }); !errors.Is(err, gate.ErrNotInFlight) {
			t.Errorf("%v after the reconcile", err)
		}
		if err := work.Start(t.Context(), func(context.Context) { t.Error("it runs") }); !errors.Is(err, gate.ErrNotInFlight) {
			t.Errorf("%v without a reconcile", err)
		}
		r.gate.Drain(set, func(slot.Slot) bool { return false }, func(slot.Slot) { t.Error("the slot is given up") })
		r.gate.Open(set, 7)
		close(end)
		if got := <-again; got != key {
			t.Errorf("%s is reconciled again, want %s", got, key)
		}
	})
}

// R2, R6: a goroutine that a reconcile has left running writes until its slot is lost, or until it returns.
func TestR06GoroutinesOfReconcilesWrite(t *testing.T) {
	r := testRota(t)
	mayWrite(r, time.Minute)
	r.gate.SetDeadline(r.now() + time.Minute)
	set := slot.SetOf(slot.Range{First: 3, Last: 4})
	r.gate.Open(set, 1)
	put := func(ctx context.Context) error {
		return send(context.WithoutCancel(ctx), t, r, http.MethodPut, func(*http.Request) (*http.Response, error) {
			return status(http.StatusOK), nil
		})
	}
	for s, test := range map[slot.Slot]struct {
		cause error
		end   func(ended func())
	}{
		3: {gate.ErrLost, func(func()) { r.gate.Shut(slot.SetOf(slot.Range{First: 3, Last: 3})) }},
		4: {gate.ErrHandover, func(ended func()) {
			r.gate.Drain(slot.SetOf(slot.Range{First: 4, Last: 4}), func(slot.Slot) bool { return false },
				func(slot.Slot) { ended() })
		}},
	} {
		ctx, leave, verdict := r.gate.Enter(t.Context(), s, gate.Key{Name: "a"}, false)
		if verdict != gate.Admitted {
			t.Fatal(verdict)
		}
		var late context.Context
		returned, drained := make(chan error), make(chan struct{})
		if err := work.Start(r.withSlot(ctx, s), func(ctx context.Context) {
			late = ctx
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, test.cause) {
				t.Errorf("it ends because of %v, want %v", cause, test.cause)
			}
			returned <- put(ctx)
		}); err != nil {
			t.Fatal(err)
		}
		leave()
		test.end(func() { close(drained) })
		err := <-returned
		if test.cause == gate.ErrLost { //nolint:errorlint // it is one of two
			if !errors.Is(err, gate.ErrLost) {
				t.Errorf("a write in a lost slot: %v", err)
			}
			continue
		}
		if err != nil {
			t.Errorf("a write before the handover: %v", err)
		}
		<-drained
		if err := put(late); err == nil {
			t.Error("a write when the goroutine has returned is sent")
		}
	}
}

// In a duty they are part of its run: the duty moves when they have returned, and is not run again before that.
func TestGoroutinesOfDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		defer r.closeStore()
		var runs atomic.Int64
		var late context.Context
		release := make(chan struct{})
		if err := r.Duty("probe", func(ctx context.Context) error {
			want := gate.ErrHandover
			if runs.Add(1) == 2 {
				want = gate.ErrLost
			}
			late = ctx
			if err := work.Start(ctx, func(ctx context.Context) {
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, want) {
					t.Errorf("it ends because of %v, want %v", cause, want)
				}
				<-release
			}); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		const s = 256
		set := slot.SetOf(slot.Range{First: s, Last: s})
		r.gate.SetDeadline(time.Hour)
		r.duties.Expect(member.Load{Slots: set, Duties: map[slot.Slot]string{s: "probe"}}, false)
		open := func(epoch uint64) {
			r.duties.Open(t.Context(), set, epoch)
			synctest.Wait()
		}
		open(7)
		time.Sleep(time.Second)
		idle := false
		r.duties.Drain(replica.Drain{Slots: set, Idle: func(slot.Slot, []table.Gone) { idle = true }})
		time.Sleep(time.Minute)
		if stuck := r.stuck(10 * time.Second); idle || len(stuck) != 1 || stuck[0].Key.Name != "probe" {
			t.Errorf("idle %t, stuck %v", idle, stuck)
		}
		open(8) // it stays
		if runs.Load() != 1 {
			t.Error("it runs again, beside what its last run has started")
		}
		first := late
		close(release)
		synctest.Wait()
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		if err := work.Start(first, func(context.Context) { t.Error("it runs") }); !errors.Is(err, gate.ErrNotInFlight) {
			t.Errorf("%v in a run that has returned", err)
		}
		r.duties.Shut(set)
		synctest.Wait()
	})
}

// An object that is made anew under its name while the key is with a worker is another one.
func TestGoroutinesOfObjectsThatWereMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.end()
		key := p.long[0]
		var mu sync.Mutex
		var causes []error
		until := func(ctx context.Context) {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
		}
		reconcile := func(meanwhile func()) {
			t.Helper()
			ctx, ok := p.c[0].Admit(t.Context(), key)
			if !ok {
				t.Fatal("not admitted")
			}
			require.NoError(t, work.Start(ctx, until))
			meanwhile()
			p.c[0].Done(key)
			synctest.Wait()
		}
		reconcile(func() {
			if err := p.inf[0].GetIndexer().Update(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
				Name: key.Name, UID: "namesake"}}); err != nil {
				t.Fatal(err)
			}
		})
		if len(causes) > 0 {
			t.Errorf("it ended because of %v before the key came up", causes)
		}
		for range 3 {
			reconcile(func() {})
			if len(causes) != 1 || !errors.Is(causes[0], gate.ErrDeleted) {
				t.Fatalf("those that ended did because of %v, want that of the first one alone, %v", causes, gate.ErrDeleted)
			}
		}
	})
}
