package ctrlrt_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Two controllers are For one kind. Both work on their share, and find it by index; also where a third one Watches the
// kind, so that it is in the cache of Whole besides. That cache lags here: no controller that is For the kind may read
// from it, or it would see what was before a handover.
func TestTwoControllersForOneKind(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprint("watched by a third: ", watched), func(t *testing.T) {
			t.Parallel()
			testTwoControllersForOneKind(t, watched)
		})
	}
}

// counted is what the members of a test wrote and saw of counters in ConfigMaps.
type counted struct {
	mu      sync.Mutex
	written map[string]int       // by name
	at      map[string]time.Time // of the last write
	by      map[string]string    // who wrote it last
	moved   map[string]bool      // seen by another member than the one that wrote it
	indexed map[string]int       // how many objects the last List by index had, by controller and pod
	errs    []error
}

// pause is the time between two writes to an object.
const pause = 100 * time.Millisecond

// count increments the counter of an object in its only controller that writes.
func (s *counted) count(ctx context.Context, c client.Client, pod string, cm *corev1.ConfigMap) error {
	n, _ := strconv.Atoi(cm.Data["n"])
	s.mu.Lock()
	if before := s.by[cm.Name]; before != "" && before != pod {
		s.moved[cm.Name] = true
		if n < s.written[cm.Name] {
			s.errs = append(s.errs, fmt.Errorf("%s sees %d in %s, where %s had written %d", pod, n, cm.Name, before,
				s.written[cm.Name]))
		}
	}
	recent := time.Since(s.at[cm.Name]) < pause
	s.mu.Unlock()
	if recent { // its own events would keep all workers busy
		return nil
	}
	cm.Data["n"] = strconv.Itoa(n + 1)
	if err := c.Update(ctx, cm); err != nil {
		return ignoreConflict(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[cm.Name], s.at[cm.Name], s.by[cm.Name] = n+1, time.Now(), pod
	return nil
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func testTwoControllersForOneKind(t *testing.T, watched bool) {
	const objects, lag, field = 20, 3 * time.Second, "data.kind"
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		cm := configMap(namespace, fmt.Sprint("counter-", i), "")
		cm.Data = map[string]string{"n": "0", "kind": "counter"}
		require.NoError(t, c.Create(t.Context(), cm))
	}
	s := &counted{written: map[string]int{}, at: map[string]time.Time{}, by: map[string]string{},
		moved: map[string]bool{}, indexed: map[string]int{}}
	start := func(pod string) *replica {
		cfg := controlplane.For(t).Config()
		cfg.QPS = -1
		caches := 0
		mgr := newMember(t, cfg, namespace, pod, rota.Options{}, func(o *ctrl.Options) {
			o.NewCache = func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
				if caches++; caches > 1 { // that of Whole
					slow := *o.HTTPClient
					slow.Transport = watchesLag(slow.Transport, lag)
					o.HTTPClient = &slow
				}
				return cache.New(cfg, o)
			}
		})
		err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, func(o client.Object) []string {
			return []string{o.(*corev1.ConfigMap).Data["kind"]}
		})
		require.NoError(t, err)
		mc := mgr.GetClient()
		build := func(name string, counts bool) {
			err := ctrlrt.NewControllerManagedBy(mgr).Named(name).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
				func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					var cm corev1.ConfigMap
					if err := mc.Get(ctx, req.NamespacedName, &cm); err != nil || cm.Data["kind"] == "" {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					var list corev1.ConfigMapList
					if err := mc.List(ctx, &list, client.MatchingFields{field: "counter"}); err != nil {
						s.mu.Lock()
						s.errs = append(s.errs, fmt.Errorf("%s of %s: %w", name, pod, err))
						s.mu.Unlock()
						return reconcile.Result{}, err
					}
					s.mu.Lock()
					s.indexed[name+" "+pod] = len(list.Items)
					s.mu.Unlock()
					if !counts {
						return reconcile.Result{}, nil
					}
					return reconcile.Result{RequeueAfter: pause}, s.count(ctx, mc, pod, &cm)
				}))
			require.NoError(t, err)
		}
		build("first", true)
		build("second", false)
		if watched {
			require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Watches(&corev1.ConfigMap{},
				&handler.EnqueueRequestForObject{}).Complete(nothing))
		}
		return begin(t, mgr)
	}
	a := start("a")
	eventually(t, 30*time.Second, settled(a))
	eventually(t, 30*time.Second, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.written); n < objects { // one that b writes first would never count as moved
			return fmt.Sprintf("a has written %d of %d objects", n, objects)
		}
		return ""
	})
	b := start("b")
	eventually(t, 60*time.Second, settled(a, b))
	a.leave(t) // everything moves
	eventually(t, 60*time.Second, settled(b))
	eventually(t, 30*time.Second, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range []string{"first b", "second b"} {
			if n := s.indexed[name]; n != objects {
				return fmt.Sprintf("List by index has %d objects for %s, want all %d", n, name, objects)
			}
		}
		if len(s.moved) < objects {
			return fmt.Sprintf("%d of %d objects were seen by the member that they moved to", len(s.moved), objects)
		}
		return ""
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.errs {
		t.Error(err)
	}
}

// What refuses a kind that is sharded by two controllers names both.
func TestRefusalNamesAllControllersOfAKind(t *testing.T) {
	mgr, _ := offline(t, "two", ctrl.Options{})
	for _, name := range []string{"first", "second"} {
		require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).Named(name).For(&corev1.ConfigMap{}).Complete(nothing))
	}
	_, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	require.ErrorSays(t, err, `controllers "first", "second"`, "KeepWhole")
	for _, name := range []string{"first", "second"} {
		err := ctrlrt.NewControllerManagedBy(mgr).Named(name).For(&corev1.ConfigMap{}).Owns(&corev1.ConfigMap{}).
			Complete(nothing)
		require.ErrorSays(t, err, strconv.Quote(name), "owns objects of the kind that it is for")
	}
	err = ctrlrt.NewControllerManagedBy(mgr).Named("first").For(&corev1.ConfigMap{}).Watches(&corev1.ConfigMap{},
		&handler.EnqueueRequestForObject{}).Complete(nothing)
	require.ErrorSays(t, err, `"first" Watches all objects`, "WatchesRawSource")
}
