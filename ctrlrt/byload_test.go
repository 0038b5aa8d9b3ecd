package ctrlrt_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// skewed is a rota of four on a real API server whose objects' reconciles cost by Zipf's law (s = 1).
type skewed struct {
	name   string
	byLoad bool
	slow   string // a member whose reconciles take twice as long
	even   bool   // all objects cost the same
}

// TestByLoad shows what sharing by load does on a real API server, beside sharing by number (rule R21). 400 objects are
// reconciled every two seconds, and keep six workers of four members busy. It takes a quarter of an hour.
func TestByLoad(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	for _, s := range []skewed{
		{name: "by number"},
		{name: "by load", byLoad: true},
		{name: "by load, one slow member", byLoad: true, slow: "d", even: true},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

const (
	skewedObjects = 400
	skewedPeriod  = 2 * time.Second
	skewedWorkers = 6.0
)

// cost is how long a reconcile of the n-th object takes.
func (s skewed) cost(n int) time.Duration {
	if s.even {
		return time.Duration(skewedWorkers / skewedObjects * float64(skewedPeriod))
	}
	sum := 0.0
	for i := range skewedObjects {
		sum += 1 / float64(i+1)
	}
	return time.Duration(skewedWorkers / sum / float64(n+1) * float64(skewedPeriod))
}

func (s skewed) run(t *testing.T) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for n := range skewedObjects {
		if err := c.Create(t.Context(), configMap(namespace, fmt.Sprintf("object-%d", n), "")); err != nil {
			t.Fatal(err)
		}
	}
	pods := []string{"a", "b", "c", "d"}
	var members []*replica
	busy := map[string]*atomic.Int64{} // for how long workers were, by member
	for _, pod := range pods {
		mine := &atomic.Int64{}
		busy[pod] = mine
		work := func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var n int
			if found, _ := fmt.Sscanf(req.Name, "object-%d", &n); found == 0 {
				return reconcile.Result{}, nil // kube-root-ca.crt
			}
			takes := s.cost(n)
			rest := skewedPeriod - takes
			if pod == s.slow {
				takes *= 2
			}
			begun := time.Now()
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			mine.Add(int64(time.Since(begun)))
			return reconcile.Result{RequeueAfter: rest}, nil
		}
		o := rota.Options{ByLoad: s.byLoad, LeaseDuration: 15 * time.Second}
		members = append(members, startMember(t, namespace, pod, o, func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
				WithOptions(controller.Options{MaxConcurrentReconciles: 10}).Complete(reconcile.Func(work))
		}))
	}
	eventually(t, time.Minute, settled(members...))
	owned := func() map[slot.Slot]int {
		out := map[slot.Slot]int{}
		for i, m := range members {
			set := m.Rota().Status().Owned
			for _, of := range set.Slots() {
				out[of] = i
			}
		}
		return out
	}
	moved := func(before, after map[slot.Slot]int) (n int) {
		for of, owner := range after {
			if was, known := before[of]; known && was != owner {
				n++
			}
		}
		return n
	}
	// worst is the largest load of the next minute to the mean one, and the slow member's part of the objects.
	worst := func() (ratio, slow float64) {
		before := map[string]int64{}
		for pod, n := range busy {
			before[pod] = n.Load()
		}
		time.Sleep(time.Minute)
		all, most, objects := 0.0, 0.0, 0.0
		for pod, n := range busy {
			took := float64(n.Load() - before[pod])
			all, most = all+took, max(most, took)
			if pod == s.slow {
				took, slow = took/2, took/2
			}
			objects += took
		}
		return most * float64(len(pods)) / all, slow / objects
	}
	start := owned()
	first, _ := worst()
	time.Sleep(3 * time.Minute)
	soon, _ := worst() // the fifth minute
	five := owned()
	time.Sleep(9 * time.Minute)
	late, slow := worst()
	t.Logf("%s: %.2f times the mean in the first minute, %.2f in the fifth, %.2f in the fifteenth; slots moved: %d in five "+
		"minutes, %d in the ten after; the slow member reconciles %.2f of the objects", s.name, first, soon, late,
		moved(start, five), moved(five, owned()), slow)
	if !s.byLoad {
		return
	}
	if late > 1.15 || moved(start, five) > 64 {
		t.Error("want at most 1.15 times the mean, and at most 64 slots moved")
	}
}
