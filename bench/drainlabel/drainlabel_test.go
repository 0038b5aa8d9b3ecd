package drainlabel

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestRing(t *testing.T) {
	if got := NewRing().Of("x"); got != "" {
		t.Errorf("without shards: %q", got)
	}
	two, three := NewRing("a", "b"), NewRing("a", "b", "c")
	const keys = 10_000
	count := map[string]int{}
	for i := range keys {
		key := fmt.Sprint("default/object-", i)
		before, after := two.Of(key), three.Of(key)
		count[after]++
		if before != after && after != "c" {
			t.Fatalf("%s moved from %s to %s, which was there before", key, before, after)
		}
	}
	for shard, n := range count {
		if n < keys/5 || n > keys/2 {
			t.Errorf("%s has %d of %d keys", shard, n, keys)
		}
	}
}

func TestState(t *testing.T) {
	now := time.Now()
	lease := func(holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-renewed))),
		}}
	}
	for _, c := range []struct {
		lease *coordinationv1.Lease
		want  state
		next  time.Duration
	}{
		{lease("a", time.Second), ready, 14 * time.Second},
		{lease("a", 16*time.Second), expired, 14 * time.Second},
		{lease("a", 31*time.Second), uncertain, 15 * time.Second},
		{lease(holder, time.Second), dead, 74 * time.Second},
		{lease("", time.Second), dead, 74 * time.Second},
		{lease("", 76*time.Second), orphaned, 0},
	} {
		got, next := stateOf(c.lease, now)
		if got != c.want || next.Round(time.Millisecond) != c.next {
			t.Errorf("held by %q, renewed %v: %s, look again in %v: want %s, %v", *c.lease.Spec.HolderIdentity,
				c.lease.Spec.RenewTime, got, next, c.want, c.next)
		}
	}
}
