package ctrlrt

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
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
			noError(t, s.Start(run, q))
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
				noError(t, src.Start(ctx, q))
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
