package ctrlrt

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// figuresEvery is longer than the half second between two updates of the metrics of unfinished work.
const figuresEvery = time.Second

// dutyQueue is the queue of one run of a duty's controller. The queues of all runs share their metrics, and the user's
// rate limiter. A stock queue does not clean these up when it is shut down, since its process ends then. Waiting items
// would stay in workqueue_depth, items in flight in workqueue_unfinished_work_seconds, and failed objects would keep
// their backoff. So this queue removes all items and updates the metrics before it is shut down.
//
// Until then, Get of the inner queue would block the workers. So pump gets keys for the workers, one at a time on
// demand.
type dutyQueue struct {
	plainQueue
	get    func() (request, int, bool)
	asked  chan struct{}
	handed chan prioritizedRequest
	ended  chan struct{} // closed by ShutDown

	mu     sync.Mutex // held while something is added
	over   bool
	failed map[request]struct{} // items with a backoff in the rate limiter
}

type prioritizedRequest struct {
	request
	priority int
}

// newDutyQueue returns a queue for a controller, and the same queue as a dutyQueue. The former has priorities if the
// inner queue has them, since controller-runtime recognizes priority queues by their type.
func newDutyQueue(inner plainQueue) (plainQueue, *dutyQueue) {
	q := &dutyQueue{
		plainQueue: inner, asked: make(chan struct{}), handed: make(chan prioritizedRequest), ended: make(chan struct{}),
		failed: map[request]struct{}{},
	}
	var out plainQueue = q
	if p, ok := inner.(prioritized); ok {
		q.get, out = p.GetWithPriority, &dutyPriorityQueue{q, p}
	} else {
		q.get = func() (request, int, bool) {
			r, shutdown := inner.Get()
			return r, 0, shutdown
		}
	}
	go q.pump()
	return out, q
}

// pump passes keys to workers that ask for one, and drops the remaining keys when the run has ended.
func (q *dutyQueue) pump() {
	for {
		select {
		case <-q.asked:
		case <-q.ended:
		}
		r, priority, shutdown := q.get()
		if shutdown {
			return
		}
		select {
		case q.handed <- prioritizedRequest{r, priority}:
		case <-q.ended:
			q.plainQueue.Done(r)
		}
	}
}

// next is Get for workers.
func (q *dutyQueue) next() (r request, priority int, shutdown bool) {
	select {
	case q.asked <- struct{}{}:
	case <-q.ended:
		return request{}, 0, true
	}
	select {
	case next := <-q.handed:
		return next.request, next.priority, false
	case <-q.ended:
		return request{}, 0, true
	}
}

// Get implements workqueue.TypedInterface.
func (q *dutyQueue) Get() (request, bool) {
	r, _, shutdown := q.next()
	return r, shutdown
}

// add adds keys, unless the run has ended. The next owner reconciles every object anyway.
func (q *dutyQueue) add(limited bool, add func(), items ...request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	if limited {
		for _, r := range items {
			q.failed[r] = struct{}{}
		}
	}
	add()
}

// Add implements workqueue.TypedInterface.
func (q *dutyQueue) Add(r request) { q.add(false, func() { q.plainQueue.Add(r) }) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *dutyQueue) AddAfter(r request, d time.Duration) {
	q.add(false, func() { q.plainQueue.AddAfter(r, d) })
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *dutyQueue) AddRateLimited(r request) {
	q.add(true, func() { q.plainQueue.AddRateLimited(r) }, r)
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *dutyQueue) Forget(r request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed, r)
	q.plainQueue.Forget(r)
}

// ShutDown implements workqueue.TypedInterface. Workers get no more items.
func (q *dutyQueue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	q.over = true
	close(q.ended)
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *dutyQueue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown implements workqueue.TypedInterface.
func (q *dutyQueue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.over
}

// end is called when all workers have stopped.
func (q *dutyQueue) end() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for r := range q.failed {
		q.plainQueue.Forget(r)
	}
	time.AfterFunc(figuresEvery, q.finish)
}

// finish shuts the inner queue down once it is empty and its metrics show that.
func (q *dutyQueue) finish() {
	if q.plainQueue.Len() > 0 {
		time.AfterFunc(figuresEvery, q.finish)
		return
	}
	q.plainQueue.ShutDown()
}

// dutyPriorityQueue is a dutyQueue with priorities.
type dutyPriorityQueue struct {
	*dutyQueue
	priorities prioritized
}

var _ prioritized = (*dutyPriorityQueue)(nil)

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *dutyPriorityQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	q.add(o.RateLimited, func() { q.priorities.AddWithOpts(o, items...) }, items...)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *dutyPriorityQueue) GetWithPriority() (request, int, bool) { return q.next() }
