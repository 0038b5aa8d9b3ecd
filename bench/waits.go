package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

// waits measures how long changes of main objects wait until they were reconciled, as somebody sees who watches.
type waits struct {
	mu   sync.Mutex
	open map[string][]waiting // by name, the older ones first
	seen map[string]int64     // the version that is shown
	done []time.Duration
}

// waiting is a change that was not reconciled yet.
type waiting struct {
	version int64
	at      time.Time
}

func newWaits() *waits { return &waits{open: map[string][]waiting{}, seen: map[string]int64{}} }

// watch follows all objects that show versions until ctx ends.
func (w *waits) watch(ctx context.Context, c *cluster.Cluster, of workload) error {
	followed, err := cache.New(c.Config, cache.Options{
		Scheme: stage.Scheme(), DefaultTransform: func(obj any) (any, error) { return shortened(of, obj), nil },
	})
	if err != nil {
		return err
	}
	inf, err := followed.GetInformer(ctx, of.shows(), cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	see := func(obj any) {
		if obj, ok := obj.(*shown); ok {
			w.observed(obj.Name, obj.version, time.Now())
		}
	}
	_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) },
	})
	if err != nil {
		return err
	}
	go func() { _ = followed.Start(ctx) }() // it ends with ctx
	if !followed.WaitForCacheSync(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

// shown is what waits keep of an object.
type shown struct {
	metav1.PartialObjectMetadata
	version int64
}

func shortened(of workload, obj any) any {
	of0, ok := obj.(client.Object)
	if !ok {
		return obj // a tombstone, or shortened
	}
	if _, ok := obj.(*shown); ok {
		return obj
	}
	return &shown{metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: of0.GetNamespace(), Name: of0.GetName(), ResourceVersion: of0.GetResourceVersion(),
	}}, of.shown(of0)}
}

// sent notes a change that was sent at a time, made a version, and is answered now.
func (w *waits) sent(name string, version int64, at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[name] = append(w.open[name], waiting{version, at})
	w.close(name, now)
}

func (w *waits) observed(name string, version int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[name] = max(w.seen[name], version)
	w.close(name, at)
}

// close ends the waits of changes that are shown.
func (w *waits) close(name string, at time.Time) {
	w.open[name] = slices.DeleteFunc(w.open[name], func(c waiting) bool {
		if c.version > w.seen[name] {
			return false
		}
		w.done = append(w.done, at.Sub(c.at))
		return true
	})
}

// waiting is how many changes are not reconciled yet.
func (w *waits) waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, open := range w.open {
		n += len(open)
	}
	return n
}

// take returns the waits since the last call, and forgets the changes that still wait.
func (w *waits) take() (done []time.Duration, missed int) {
	missed = w.waiting()
	w.mu.Lock()
	defer w.mu.Unlock()
	done, w.done = w.done, nil
	clear(w.open)
	return done, missed
}

// change is a request for one that was answered.
type change struct {
	name    string // of the main object
	version int64  // that it has then
}

// change changes a main object. The stride is coprime to round numbers of objects, so each is changed once before any
// is changed again.
func (c *crew) change(ctx context.Context) (change, error) {
	n := c.changed.Add(1)
	at := client.ObjectKey{Namespace: c.cluster.Sites, Name: cluster.SiteName(int(n) * 7919 % c.mains())}
	version, err := c.Workload.change(ctx, c.cluster.Client, at, n)
	return change{at.Name, version}, err
}

// created is the namespace of main objects that are made while it is measured.
const created = operatorNamespace + "-created"

// create makes a main object.
func (c *crew) create(ctx context.Context) (change, error) {
	n := c.changed.Add(1)
	at := client.ObjectKey{Namespace: created, Name: fmt.Sprintf("made-%07d", n)}
	version, err := c.Workload.create(ctx, c.cluster.Client, at, n)
	return change{at.Name, version}, err
}

// empty removes what create made.
func (c *crew) empty(ctx context.Context) error {
	return c.cluster.Empty(ctx, created, c.Workload.lists()...)
}

// load does something at a rate until ctx ends, and waits for the answers. What cannot be sent is sent again: an API
// server may restart. Any other error ends it, and fail hears of it at once.
func (c *crew) load(
	ctx context.Context, rate float64, do func(context.Context, *crew) (change, error), fail func(error),
) error {
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	step := time.Duration(float64(time.Second) / rate)
	whole := context.WithoutCancel(ctx)
	for begun, i := time.Now(), 0; ; i++ {
		if await.Sleep(ctx, time.Until(begun.Add(time.Duration(i)*step))) != nil {
			break
		}
		wg.Go(func() {
			at := time.Now()
			for {
				done, err := do(whole, c)
				switch {
				case err == nil:
					c.waits.sent(done.name, done.version, at, time.Now())
					return
				case away(err) && time.Since(at) < awayLimit:
					_ = await.Sleep(whole, pollEvery) // it does not end
					continue
				}
				err = fmt.Errorf("change an object: %w", err)
				select {
				case failed <- err:
					fail(err)
					cancel()
				default:
				}
				return
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// awayLimit is how long an API server may be away.
const awayLimit = 2 * time.Minute

// away says that the API server could not be asked, or cannot answer yet: any error but one about the request.
func away(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsForbidden(err)
}
