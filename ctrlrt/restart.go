package ctrlrt

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// registrations are the event handlers of one run of a duty's controller. controller-runtime's controllers do not
// remove their handlers from the informers, so handlers of a duty would pile up.
type registrations struct {
	mu      sync.Mutex
	removes []func()
	ended   bool
}

type registrationsKey struct{}

func withRegistrations(ctx context.Context, r *registrations) context.Context {
	return context.WithValue(ctx, registrationsKey{}, r)
}

// recorded returns an informer whose handlers end with the run of the controller that the context belongs to.
func recorded(ctx context.Context, informer cache.Informer) cache.Informer {
	r, ok := ctx.Value(registrationsKey{}).(*registrations)
	if !ok {
		return informer
	}
	if _, already := informer.(recordedInformer); already {
		return informer
	}
	return recordedInformer{informer, r}
}

// add records a handler.
func (r *registrations) add(informer cache.Informer, registration toolscache.ResourceEventHandlerRegistration) {
	remove := func() { _ = informer.RemoveEventHandler(registration) } // fails for an informer that has stopped
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		go remove()
		return
	}
	r.removes = append(r.removes, remove)
}

// end removes all handlers.
func (r *registrations) end() {
	r.mu.Lock()
	removes := r.removes
	r.removes, r.ended = nil, true
	r.mu.Unlock()
	for _, remove := range removes {
		remove()
	}
}

type recordedInformer struct {
	cache.Informer
	run *registrations
}

// AddEventHandler implements cache.Informer.
func (i recordedInformer) AddEventHandler(h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.note(i.Informer.AddEventHandler(h))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i recordedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.note(i.Informer.AddEventHandlerWithResyncPeriod(h, resync))
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i recordedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.note(i.Informer.AddEventHandlerWithOptions(h, o))
}

func (i recordedInformer) note(r toolscache.ResourceEventHandlerRegistration, err error,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		i.run.add(i.Informer, r)
	}
	return r, err
}

// recordingCache gives out informers whose handlers end with the run of a duty's controller.
type recordingCache struct{ cache.Cache }

// GetInformer implements cache.Informers.
func (c recordingCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return recorded(ctx, informer), nil
}

// restartable is a raw source of a duty's controller, which is started with each run of the controller.
type restartable struct {
	source.Source
	// once is true if the source can be started only once. Then its events go to queue.
	once  bool
	start sync.Once
	queue heldQueue

	mu   sync.Mutex
	life context.Context //nolint:containedctx // the context of the manager
}

func newRestartable(src source.Source) *restartable {
	// The source may read from the cache of Whole or of another cluster.
	recording := controllerruntime.WithCache(src, func(c cache.Cache) cache.Cache { return recordingCache{c} })
	return &restartable{Source: recording, once: controllerruntime.IsChannel(src),
		queue: heldQueue{changed: make(chan struct{})}}
}

// String names the source in logs.
func (s *restartable) String() string { return fmt.Sprint(s.Source) }

// live sets the context of the manager.
func (s *restartable) live(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = ctx
}

// pause is called after a run of the controller.
func (s *restartable) pause() { s.queue.set(nil) }

// Start implements source.Source.
func (s *restartable) Start(ctx context.Context, q plainQueue) error {
	if informer, ok := s.Source.(*source.Informer); ok && informer.Informer != nil {
		of := *informer
		of.Informer = recorded(ctx, informer.Informer)
		return of.Start(ctx, q)
	}
	if !s.once {
		return s.Source.Start(ctx, q)
	}
	s.queue.set(q)
	s.mu.Lock()
	life := s.life
	s.mu.Unlock()
	if life == nil {
		life = context.WithoutCancel(ctx)
	}
	var err error
	s.start.Do(func() {
		s.queue.life = life
		err = s.Source.Start(life, &s.queue)
	})
	return err
}

// WaitForSync implements source.SyncingSource.
func (s *restartable) WaitForSync(ctx context.Context) error {
	if syncs, ok := s.Source.(source.SyncingSource); ok {
		return syncs.WaitForSync(ctx)
	}
	return nil
}

// heldQueue passes items on to the queue of the current run. Between runs, adding blocks.
type heldQueue struct {
	life context.Context //nolint:containedctx // the context of the manager

	mu      sync.Mutex
	queue   plainQueue
	changed chan struct{} // closed and replaced when queue changes
}

var _ prioritized = (*heldQueue)(nil)

func (q *heldQueue) set(queue plainQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	close(q.changed)
	q.changed = make(chan struct{})
}

// wait waits for a run and returns its queue. After the manager's end it returns a queue that is shut down.
func (q *heldQueue) wait() plainQueue {
	for {
		q.mu.Lock()
		queue, changed := q.queue, q.changed
		q.mu.Unlock()
		if queue != nil && !queue.ShuttingDown() {
			return queue
		}
		select {
		case <-changed:
		case <-q.life.Done():
			ended := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
			ended.ShutDown()
			return ended
		}
	}
}

// These calls go to the queue of the current run.
func (q *heldQueue) Add(r request)                       { q.wait().Add(r) }
func (q *heldQueue) AddAfter(r request, d time.Duration) { q.wait().AddAfter(r, d) }
func (q *heldQueue) AddRateLimited(r request)            { q.wait().AddRateLimited(r) }
func (q *heldQueue) Len() int                            { return q.wait().Len() }
func (q *heldQueue) Get() (request, bool)                { return q.wait().Get() }
func (q *heldQueue) Done(r request)                      { q.wait().Done(r) }
func (q *heldQueue) Forget(r request)                    { q.wait().Forget(r) }
func (q *heldQueue) NumRequeues(r request) int           { return q.wait().NumRequeues(r) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *heldQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	queue := q.wait()
	if p, ok := queue.(prioritized); ok {
		p.AddWithOpts(o, items...)
		return
	}
	for _, r := range items {
		switch {
		case o.After > 0:
			queue.AddAfter(r, o.After)
		case o.RateLimited:
			queue.AddRateLimited(r)
		default:
			queue.Add(r)
		}
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *heldQueue) GetWithPriority() (request, int, bool) {
	r, shutdown := q.Get()
	return r, 0, shutdown
}

// ShutDown does nothing: the queue belongs to the controller.
func (q *heldQueue) ShutDown() {}

// ShutDownWithDrain does nothing.
func (q *heldQueue) ShutDownWithDrain() {}

// ShuttingDown implements workqueue.TypedInterface.
func (q *heldQueue) ShuttingDown() bool { return q.life.Err() != nil }
