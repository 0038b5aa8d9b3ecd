package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/test/require"
)

func newPlainQueue() plainQueue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
}

// A channel's events go to the queue of the present run of a duty's controller. Between two runs they wait.
func TestChannelsOutliveRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan event.GenericEvent)
		life, end := context.WithCancel(t.Context())
		s := newRestartable(source.Channel(events, &handler.EnqueueRequestForObject{}))
		if !s.once {
			t.Fatal("controller-runtime's channels are not recognized")
		}
		s.live(life)
		send := func(name string) {
			events <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			synctest.Wait()
		}
		for _, name := range []string{"first", "second", "third"} {
			run, stop := context.WithCancel(t.Context())
			q := newPlainQueue()
			require.NoError(t, s.Start(run, q))
			synctest.Wait()
			if name != "first" && q.Len() != 1 {
				t.Errorf("%s run: %d keys have waited for it, want 1", name, q.Len())
			}
			send(name)
			want := 2
			if name == "first" {
				want = 1
			}
			if q.Len() != want {
				t.Errorf("%s run: %d keys, want %d", name, q.Len(), want)
			}
			stop()
			q.ShutDown()
			s.pause()
			send("between") // it is in the channel's own buffer
		}
		end()
		time.Sleep(time.Second)
	})
}

// fakeInformer counts its handlers.
type fakeInformer struct {
	cache.Informer
	handlers atomic.Int64
}

func (f *fakeInformer) AddEventHandlerWithOptions(toolscache.ResourceEventHandler, toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	f.handlers.Add(1)
	return synced{}, nil
}

func (f *fakeInformer) AddEventHandler(toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	f.handlers.Add(1)
	return synced{}, nil
}

func (f *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	f.handlers.Add(-1)
	return nil
}

type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// fakeCache gives out one informer.
type fakeCache struct {
	informertest.FakeInformers
	informer *fakeInformer
}

func (f *fakeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return f.informer, nil
}

// Event handlers end with the run of the controller that added them, also those that come late.
func TestHandlersEndWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCache{informer: &fakeInformer{}}
		// That of a cache which is not the manager's: of another cluster, or of Whole.
		foreign := newRestartable(source.Kind[client.Object](f, &corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}))
		for range 3 {
			r := &registrations{}
			ctx, stop := context.WithCancel(withRegistrations(t.Context(), r))
			for _, src := range []source.Source{
				source.Kind[client.Object](recordingCache{f}, &corev1.ConfigMap{}, &handler.EnqueueRequestForObject{},
					predicate.Funcs{}),
				newRestartable(&source.Informer{Informer: f.informer, Handler: &handler.EnqueueRequestForObject{}}),
				foreign,
			} {
				q := newPlainQueue()
				defer q.ShutDown()
				require.NoError(t, src.Start(ctx, q))
			}
			synctest.Wait()
			if n := f.informer.handlers.Load(); n != 3 {
				t.Errorf("%d handlers in a run, want 3", n)
			}
			r.end()
			if n := f.informer.handlers.Load(); n != 0 {
				t.Errorf("%d handlers after a run", n)
			}
			if _, err := recorded(ctx, f.informer).AddEventHandler(nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := f.informer.handlers.Load(); n != 0 {
				t.Errorf("%d handlers that came late", n)
			}
			stop()
		}
	})
}

// gauge returns the sum of a metric of the queues of a name.
func gauge(t *testing.T, metric, queue string) (sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == "name" && l.GetValue() == queue {
					sum += m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

func requestOf(i int) request {
	return request{NamespacedName: types.NamespacedName{Namespace: "a", Name: fmt.Sprint(i)}}
}

// The queues of a duty's runs share their metrics. What a run leaves in its queue must not stay in them, nor in a rate
// limiter that the user has set.
func TestWhatARunOfADutyLeavesInItsQueue(t *testing.T) {
	mgr := unstarted(t)
	for name, priorities := range map[string]bool{"with-priorities": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testLeftInQueue(t, mgr, name, priorities) })
		})
	}
}

// unstarted returns a manager of which there is no API server.
func unstarted(t *testing.T) *Manager {
	t.Helper()
	r, mapper := unserved(t)
	mgr, err := NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r,
		manager.Options{
			Metrics:        metricsserver.Options{BindAddress: "0"},
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		})
	require.NoError(t, err)
	return mgr
}

func testLeftInQueue(t *testing.T, mgr *Manager, name string, priorities bool) {
	name = "left-" + name
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[request](time.Millisecond, time.Hour)
	const keys, failing = 60, 0
	d := &dutyController{DutyBuilder: NewDutyControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		RateLimiter: limiter, UsePriorityQueue: ptr.To(priorities),
	}).WatchesRawSource(source.Func(func(_ context.Context, q plainQueue) error {
		for i := range keys {
			q.Add(requestOf(i))
		}
		return nil
	}))}
	var ctx context.Context
	d.reconciler = reconcile.Func(func(_ context.Context, r request) (reconcile.Result, error) {
		switch {
		case r == requestOf(failing):
			return reconcile.Result{}, errors.New("it fails")
		case limiter.NumRequeues(requestOf(failing)) > 3: // time enough for the queue to publish that this one goes on
			<-ctx.Done()
			time.Sleep(time.Minute)
		}
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	})
	for run := range 3 {
		var end context.CancelFunc
		ctx, end = context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.run(ctx) }()
		time.Sleep(time.Hour)
		if depth, work := gauge(t, "workqueue_depth", name), gauge(t, "workqueue_unfinished_work_seconds", name); depth == 0 ||
			work == 0 {
			t.Errorf("run %d: depth %v, unfinished work %v: this says nothing", run, depth, work)
		}
		end()
		require.NoError(t, <-ended)
		if n := limiter.NumRequeues(requestOf(failing)); n != 0 {
			t.Errorf("run %d: an object that failed in it begins with the backoff of its %d failures", run, n)
		}
		time.Sleep(time.Minute)
		for _, metric := range []string{
			"workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
		} {
			if left := gauge(t, metric, name); left != 0 {
				t.Errorf("run %d: %s is %v when nothing runs, want 0", run, metric, left)
			}
		}
	}
}
