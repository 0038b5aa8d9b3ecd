package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// testObjects is a holder of objects whose Open returns when they are enqueued.
type testObjects struct {
	*controllers.Holder
	rota *Engine
	ctx  context.Context
}

func testHolder(t *testing.T, r *Engine) testObjects {
	return testObjects{r.holder(), r, t.Context()}
}

func (o testObjects) Open(set slot.Set, epoch uint64) { o.Holder.Open(o.ctx, set, epoch)() }

// R10: handlers are silent about a shut slot, so what was counted from events is reset before the next reconcile, once.
func TestR10Reset(t *testing.T) {
	for _, test := range []struct {
		name string
		// between happens between two reconciles.
		between func(objects testObjects, mine slot.Set)
		want    int
	}{
		{"nothing happens", func(testObjects, slot.Set) {}, 1},
		{"the slot is shut and opened, as after a lapse", func(objects testObjects, mine slot.Set) {
			objects.Shut(mine)
			objects.Open(mine, 7)
		}, 2},
		{"the slot goes and comes back", func(objects testObjects, mine slot.Set) {
			objects.Shut(mine)
			objects.Release(mine)
			objects.rota.share.Hold(mine)
			objects.Open(mine, 9)
		}, 2},
		{"a drain is called off: handlers heard everything", func(objects testObjects, mine slot.Set) {
			objects.rota.gate.Drain(mine, func(slot.Slot) bool { return false }, func(slot.Slot) {})
			objects.Open(mine, 7)
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			q, _ := testQueue(t, r)
			objects := testHolder(t, r)
			var got []string
			q.OnReset(func(ctx context.Context, item cache.ObjectName) {
				if _, ok := gate.EpochFrom(ctx); !ok {
					t.Error("the context is not that of the reconcile")
				}
				got = append(got, item.String())
			})
			sync := q.Admit(func(context.Context, cache.ObjectName) error { return nil })
			work := func() {
				q.Add(testItem)
				item, _ := q.Get()
				require.NoError(t, sync(t.Context(), item))
				q.Done(item)
			}
			mine := own(r, testItem)
			// The object exists: it is not forgotten between two reconciles.
			keep(t, r)
			work()
			work()
			test.between(objects, mine)
			work()
			work()
			if want := slices.Repeat([]string{testItem.String()}, test.want); !slices.Equal(got, want) {
				t.Errorf("reset: %v, want %v", got, want)
			}
		})
	}
}

// R10: a reconcile that a lapse cut short may expect something until it returns, which can be after the slot was opened
// again. No other reconcile of its key runs meanwhile, and the next one is preceded by a reset.
func TestR10ResetAfterAReconcileThatReturnsLate(t *testing.T) {
	r := testRota(t)
	q, inner := testQueue(t, r)
	objects := testHolder(t, r)
	var log []string
	q.OnReset(func(context.Context, cache.ObjectName) { log = append(log, "reset") })
	mine := own(r, testItem)
	keep(t, r)
	sync := q.Admit(func(context.Context, cache.ObjectName) error {
		objects.Shut(mine)
		objects.Open(mine, 7)
		q.Add(testItem)
		if n := inner.Len(); n != 0 {
			t.Errorf("%d workers can have the key of a reconcile that still runs, want none", n)
		}
		log = append(log, "expect")
		return nil
	})
	q.Add(testItem)
	item, _ := q.Get()
	_ = sync(t.Context(), item)
	q.Done(item)
	again := q.Admit(func(context.Context, cache.ObjectName) error { log = append(log, "sync"); return nil })
	item, _ = q.Get()
	_ = again(t.Context(), item)
	q.Done(item)
	if want := []string{"reset", "expect", "reset", "sync"}; !slices.Equal(log, want) {
		t.Errorf("happened: %v, want %v", log, want)
	}
}

// R10: a slot that is shut while the reset runs is reset again.
func TestR10ResetThatIsCutShort(t *testing.T) {
	r := testRota(t)
	q, _ := testQueue(t, r)
	objects := testHolder(t, r)
	mine := own(r, testItem)
	keep(t, r)
	resets := 0
	q.OnReset(func(context.Context, cache.ObjectName) {
		if resets++; resets == 1 {
			objects.Shut(mine)
		}
	})
	for range 2 {
		q.Add(testItem)
		item, _ := q.Get()
		_ = q.Admit(func(context.Context, cache.ObjectName) error { return nil })(t.Context(), item)
		q.Done(item)
		objects.Open(mine, 7)
	}
	if resets != 2 {
		t.Errorf("reset %d times, want 2", resets)
	}
}

// keep puts the test's item into a store.
func keep(t *testing.T, r *Engine) {
	t.Helper()
	kind := secretKind
	inf := r.share.NewInformer(kind, &cache.ListWatch{}, &corev1.Secret{}, deliverytest.Never, nil)
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testItem.Namespace, Name: testItem.Name}}
	require.NoError(t, inf.GetIndexer().Add(obj))
}

// Whether a controller counts events cannot be known. Those that may have handlers on children are asked, once. Children
// that wait for their finalizers although their owners are gone are told.
func TestQueuesThatMayNeedOnReset(t *testing.T) {
	reset := func(q *Queue[string]) { q.OnReset(func(context.Context, string) {}) }
	silent := func(*Queue[string]) {}
	for name, test := range map[string]struct {
		deaf          bool // the children have no handler
		decide, other func(*Queue[string])
		asked         string
	}{
		"forgotten":           {decide: silent, other: silent, asked: `"controllers"="replicas, ttl"`},
		"set":                 {decide: reset, other: silent},
		"not needed":          {decide: func(q *Queue[string]) { q.OnReset(nil) }, other: reset},
		"not needed by one":   {decide: func(q *Queue[string]) { q.OnReset(nil) }, other: silent, asked: `"controllers"="ttl"`},
		"children are listed": {deaf: true, decide: silent, other: silent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &lines{}
				pod := func(name, owner string, deleted time.Duration, finalizers ...string) *corev1.Pod {
					return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Finalizers: finalizers,
						DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-deleted)},
						OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, Controller: ptr.To(true)}}}}
				}
				client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "there"}},
					pod("stranded", "gone", time.Minute, "a/b"), pod("owned", "there", time.Minute, "a/b"),
					pod("ends", "gone", time.Minute), pod("later", "gone", -time.Hour, "a/b"))
				r, err := New(nil, Options{Solo: true, Logger: log.logger()})
				require.NoError(t, err)
				factory := informers.NewSharedInformerFactory(client, deliverytest.Never)
				owners, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{},
					client.CoreV1().ConfigMaps(metav1.NamespaceAll))
				require.NoError(t, err)
				children, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{},
					client.CoreV1().Pods(metav1.NamespaceAll), Children{Of: schema.GroupKind{Kind: "ConfigMap"}})
				require.NoError(t, err)
				withHandler(t, owners)
				if !test.deaf {
					withHandler(t, children)
				}
				q, err := NewQueue(r, "replicas", owners, testInner[string](t))
				require.NoError(t, err)
				other, err := NewQueue(r, "ttl", owners, testInner[string](t))
				require.NoError(t, err)
				test.decide(q)
				test.other(other)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(5*time.Minute, cancel)
				err = r.Work(ctx, func(ctx context.Context) {
					factory.Start(ctx.Done())
					for _, q := range []*Queue[string]{q, other} {
						context.AfterFunc(ctx, q.ShutDown)
						go q.Get()
					}
					<-ctx.Done()
					factory.Shutdown()
				})
				if err != nil {
					t.Error(err)
				}
				asked := 0
				if test.asked != "" {
					asked = 1
				}
				log.wants(t, asked, "no queue of their owners has a function of OnReset", "OnReset(nil)", `"children"="Pod"`)
				log.wants(t, asked, "no queue of their owners has a function of OnReset", test.asked)
				log.wants(t, 1, "rota.NewQueueOf", `"kind"="Pod" "objects"=1 "first"="a/stranded"`)
			})
		})
	}
}
