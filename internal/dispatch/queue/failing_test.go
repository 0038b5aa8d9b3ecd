package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Keys that fail are listed with the reason, the one that has failed for longest first, until they succeed or go.
func TestFailing(t *testing.T) {
	q, err := New(Config{Slots: 2, Kinds: []string{"A", "B"}, BaseDelay: time.Second, Length: 5 * time.Second})
	require.NoError(t, err)
	const day = 24 * time.Hour
	all := slot.SetOf(slot.Range{First: 0, Last: 1})
	q.Open(0, all, 1)
	q.SetDeadline(0, day)
	ask := uint64(0)
	// fail takes a key and ends it; nil: the take expires.
	work := func(now time.Duration, key Key, of slot.Slot, r *Result) {
		t.Helper()
		require.NoError(t, q.Change(now, Change{Key: key, Slot: of}))
		ask++
		require.NoError(t, q.Ask(now, Ask{ID: ask, Worker: "w", Kinds: []string{key.Kind}, Max: 1}))
		given, _ := q.Actions(now)[0].(Given)
		if len(given.Takes) != 1 || given.Takes[0].Key != key {
			t.Fatalf("got %v, want %v", given.Takes, key)
		}
		if r == nil {
			q.Actions(now + 5*time.Second)
			return
		}
		require.NoError(t, q.Done(now, given.Takes[0].ID, "w", *r))
	}
	expect := func(now time.Duration, kinds []string, most, count int, want ...Failing) {
		t.Helper()
		got, n := q.Failing(now, kinds, most)
		if diff := cmp.Diff(want, got); diff != "" || n != count {
			t.Errorf("at %v: %d keys, want %d (-want +got):\n%s", now, n, count, diff)
		}
	}
	a, b := Key{Kind: "A", Namespace: "n", Name: "a"}, Key{Kind: "B", Namespace: "n", Name: "b"}
	both := []string{"A", "B", "of another version"}
	work(1*time.Second, a, 0, &Result{Retry: true, Reason: "no such bucket"})
	failingA := Failing{Key: a, Attempts: 1, Since: time.Second, Last: time.Second, Reason: "no such bucket", Next: 2 * time.Second}
	expect(time.Second, both, 10, 1, failingA)
	work(10*time.Second, b, 1, nil)
	failingB := Failing{Key: b, Attempts: 1, Since: 15 * time.Second, Last: 15 * time.Second, Reason: expiredReason,
		Next: 16 * time.Second}
	expect(15*time.Second, both, 10, 2, failingA, failingB)
	expect(15*time.Second, both, 1, 2, failingA)
	expect(15*time.Second, []string{"B"}, 10, 1, failingB)
	work(20*time.Second, a, 0, &Result{Retry: true, Reason: strings.Repeat("ü", MaxReason)})
	failingA.Attempts, failingA.Last, failingA.Next = 2, 20*time.Second, 22*time.Second
	failingA.Reason = strings.Repeat("ü", MaxReason/2)
	expect(20*time.Second, []string{"A"}, 10, 1, failingA)
	if s := q.Stats()[0]; s.Failing != 1 || s.FailingSince != time.Second {
		t.Errorf("figures %+v", s)
	}
	work(30*time.Second, a, 0, &Result{})
	expect(30*time.Second, both, 10, 1, failingB)
	q.Shut(31*time.Second, all)
	expect(31*time.Second, both, 10, 0)
}
