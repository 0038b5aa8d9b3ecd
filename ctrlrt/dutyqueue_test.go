package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// gauge returns the sum of a metric of the queues of a name.
func gauge(t *testing.T, metric, queue string) (sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	noError(t, err)
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
	noError(t, err)
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
		if err := <-ended; err != nil {
			t.Error(err)
		}
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
