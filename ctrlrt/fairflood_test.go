package ctrlrt_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/test/controlplane"
)

// Figures of TestFairFlood, as in ark issue 2597: one tenant's objects all change again and again.
const (
	floodTenants = 51 // one of them floods
	floodObjects = 100
	floodWorkers = 10
	floodTakes   = 100 * time.Millisecond
	floodRate    = 20 // changes per second of all others together
	floodPhase   = 40 * time.Second
)

// floodWaits are from a change until its object is reconciled.
type floodWaits struct {
	mu      sync.Mutex
	changed map[types.NamespacedName]time.Time
	took    []time.Duration
}

func (w *floodWaits) change(key types.NamespacedName, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waiting := w.changed[key]; !waiting {
		w.changed[key] = at
	}
}

func (w *floodWaits) reconciled(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, waiting := w.changed[key]; waiting {
		w.took = append(w.took, time.Since(at))
		delete(w.changed, key)
	}
}

// take returns the median and the 99th percentile since the last call.
func (w *floodWaits) take() (median, p99 time.Duration, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Sorted(slices.Values(w.took))
	w.took = nil
	if len(all) == 0 {
		return 0, 0, 0
	}
	return all[len(all)/2], all[len(all)*99/100], len(all)
}

// TestFairFlood shows on a real API server what a fair queue does: 51 namespaces of 100 objects each, of which one
// floods. A member with a fair queue and one with a stock queue reconcile the same objects at the same time. It takes
// two minutes.
func TestFairFlood(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	c := adminClient(t)
	var namespaces []string
	for range floodTenants {
		namespaces = append(namespaces, controlplane.Namespace(t))
	}
	each(t, floodTenants*floodObjects, func(n int) error {
		return c.Create(t.Context(), configMap(namespaces[n%floodTenants], fmt.Sprintf("object-%d", n/floodTenants), ""))
	})
	queues := map[string]*floodWaits{}
	for name, o := range map[string]controller.Options{
		"stock": {}, "fair": {NewQueue: ctrlrt.FairQueue(fair.Options[reconcile.Request]{})},
	} {
		w := &floodWaits{changed: map[types.NamespacedName]time.Time{}}
		queues[name] = w
		o.MaxConcurrentReconciles = floodWorkers
		work := func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			w.reconciled(req.NamespacedName)
			select {
			case <-time.After(floodTakes):
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}
		m := startMember(t, namespaces[0], name, rota.Options{LabelNamespaces: []string{metav1.NamespaceAll}, LeaseDuration: 15 * time.Second},
			func(mgr *ctrlrt.Manager) error {
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(o).Complete(reconcile.Func(work))
			})
		eventually(t, time.Minute, settled(m))
		namespaces = append(namespaces[1:], namespaces[0]) // each rota is in a namespace of its own
	}
	time.Sleep(floodTenants * floodObjects * floodTakes / floodWorkers) // until the first reconciles are over
	flooder, others := namespaces[0], namespaces[1:]
	change := func(namespace string, n int) error {
		key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("object-%d", n)}
		obj := configMap(key.Namespace, key.Name, "")
		patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, time.Now().UnixNano())
		if namespace != flooder {
			for _, w := range queues {
				w.change(key, time.Now())
			}
		}
		return c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, patch))
	}
	phase := func(name string, flood bool) map[string]time.Duration {
		ctx, end := context.WithTimeout(t.Context(), floodPhase)
		defer end()
		var running sync.WaitGroup
		if flood {
			for part := range 2 {
				running.Go(func() {
					for n := part; ctx.Err() == nil; n += 2 {
						if err := change(flooder, n%floodObjects); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		tick := time.NewTicker(time.Second / floodRate)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			if err := change(others[n%len(others)], n/len(others)%floodObjects); err != nil {
				t.Fatal(err)
			}
			<-tick.C
		}
		running.Wait()
		time.Sleep(2 * time.Second)
		out := map[string]time.Duration{}
		for queue, w := range queues {
			median, p99, n := w.take()
			out[queue] = p99
			t.Logf("%s, %s queue: the others' changes waited %v (median), %v (p99), of %d", name, queue,
				median.Round(time.Millisecond), p99.Round(time.Millisecond), n)
		}
		return out
	}
	phase("warming up", false)
	alone, beside := phase("alone", false), phase("beside the flood", true)
	// What is left of a worker's reconcile is waited for in any case, as nobody is interrupted.
	if bound := max(2*alone["fair"], 2*floodTakes); beside["fair"] > bound {
		t.Errorf("with a fair queue the others waited %v beside the flood, and %v alone (p99)", beside["fair"], alone["fair"])
	}
}

// each calls do with 0 to n-1, eight at a time.
func each(t *testing.T, n int, do func(int) error) {
	t.Helper()
	var all sync.WaitGroup
	for part := range 8 {
		all.Go(func() {
			for i := part; i < n; i += 8 {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
