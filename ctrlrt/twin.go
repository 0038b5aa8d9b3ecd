package ctrlrt

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// twin is a second controller with the same sources as a sharded one. Its workers never run, its informers deliver no
// events, and its queue only records requests. So its event handlers show what the sharded controller would enqueue for
// an object. It is the manager that its builder sees.
type twin struct {
	manager.Manager
	builder *builder.Builder
	// controller is set by build.
	controller manager.Runnable
	// caches are in the order of the sources: a builder gets the manager's cache once for each.
	caches  []*twinCache
	answers answers
}

func newTwin(m manager.Manager) *twin {
	t := &twin{Manager: m}
	t.builder = builder.ControllerManagedBy(t)
	return t
}

// Add implements manager.Manager. It keeps the controller from running.
func (t *twin) Add(r manager.Runnable) error {
	t.controller = r
	return nil
}

// GetCache implements manager.Manager.
func (t *twin) GetCache() cache.Cache {
	c := &twinCache{}
	t.caches = append(t.caches, c)
	return c
}

// build builds the controller. Its sources start on start.
func (t *twin) build(name string) error {
	t.builder.Named(name).WithOptions(controller.Options{
		EnableWarmup:       ptr.To(true), // starts sources without workers
		SkipNameValidation: ptr.To(true),
		LogConstructor:     func(*request) logr.Logger { return logr.Discard() },
		NewQueue:           func(string, workqueue.TypedRateLimiter[request]) plainQueue { return &t.answers },
	})
	return t.builder.Complete(reconcile.Func(func(context.Context, request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}))
}

// start has the sources add their handlers to the twin's caches. Map functions get contexts derived from ctx.
func (t *twin) start(ctx context.Context) error {
	c, ok := t.controller.(interface{ Warmup(context.Context) error })
	if !ok {
		return errors.New("this controller-runtime's controllers have no Warmup")
	}
	return c.Warmup(ctx)
}

// twinCache gives out informers without events.
type twinCache struct {
	cache.Cache
	informer twinInformer
}

// GetInformer implements cache.Informers.
func (c *twinCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &c.informer, nil
}

// WaitForCacheSync implements cache.Informers.
func (c *twinCache) WaitForCacheSync(context.Context) bool { return true }

// twinInformer keeps the handler that a source adds to it.
type twinInformer struct {
	cache.Informer

	mu      sync.Mutex
	handler toolscache.ResourceEventHandler
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *twinInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handler = h
	return twinRegistration{}, nil
}

// added returns the handler, or nil if the source has not started.
func (i *twinInformer) added() toolscache.ResourceEventHandler {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.handler
}

type twinRegistration struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (twinRegistration) HasSynced() bool { return true }

// answers is a queue that records requests. Event handlers of controller-runtime only add to queues.
type answers struct {
	plainQueue

	mu  sync.Mutex // held while a handler is asked
	got []request
}

// These implement workqueue.TypedRateLimitingInterface.
func (q *answers) Add(r request)                       { q.got = append(q.got, r) }
func (q *answers) AddAfter(r request, _ time.Duration) { q.Add(r) }
func (q *answers) AddRateLimited(r request)            { q.Add(r) }

// ShutDown implements workqueue.TypedInterface. The controller calls it when its context ends.
func (q *answers) ShutDown() {}

// ask returns what a handler enqueues for an object: by a creation, as at a start; or, if its predicates reject that,
// by an update. The former owner of a slot may have had the object in its queue because of either.
func (q *answers) ask(handler toolscache.ResourceEventHandler, obj client.Object) []request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.got = nil
	handler.OnAdd(obj, true)
	if len(q.got) == 0 {
		handler.OnUpdate(obj, obj)
	}
	if len(q.got) == 0 {
		handler.OnUpdate(unlike(obj), obj)
	}
	return q.got
}

// unlike returns an object with the same content and other metadata, for predicates that compare metadata.
func unlike(obj client.Object) client.Object {
	old := obj.DeepCopyObject().(client.Object)
	old.SetGeneration(obj.GetGeneration() - 1)
	old.SetResourceVersion("")
	old.SetLabels(nil)
	old.SetAnnotations(nil)
	old.SetFinalizers(nil)
	old.SetDeletionTimestamp(nil)
	return old
}
