package bench

import (
	"context"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/rig"
)

// waits measures how long changes of Websites wait until they are reconciled, as a client that watches sees it.
type waits struct {
	mu   sync.Mutex
	open map[string][]waiting // by name, the older ones first
	seen map[string]int64     // the generation that the status shows
	done []time.Duration
}

// waiting is a change that was not reconciled yet.
type waiting struct {
	generation int64
	at         time.Time
}

func newWaits() *waits { return &waits{open: map[string][]waiting{}, seen: map[string]int64{}} }

// watch follows all Websites until ctx ends.
func (w *waits) watch(ctx context.Context, c *rig.Cluster) error {
	followed, err := cache.New(c.Config, cache.Options{
		Scheme: rig.Scheme(), DefaultNamespaces: map[string]cache.Config{c.Sites: {}},
		DefaultTransform: func(obj any) (any, error) {
			if site, ok := obj.(*webv1.Website); ok {
				site.Spec, site.ManagedFields = webv1.WebsiteSpec{}, nil
			}
			return obj, nil
		},
	})
	if err != nil {
		return err
	}
	inf, err := followed.GetInformer(ctx, &webv1.Website{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	see := func(obj any) {
		if site, ok := obj.(*webv1.Website); ok {
			w.observed(site.Name, site.Status.ObservedGeneration, time.Now())
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

// sent notes a change that was sent at a time, made a generation, and is answered now.
func (w *waits) sent(name string, generation int64, at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[name] = append(w.open[name], waiting{generation, at})
	w.close(name, now)
}

func (w *waits) observed(name string, generation int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[name] = max(w.seen[name], generation)
	w.close(name, at)
}

// close ends the waits of changes that are shown.
func (w *waits) close(name string, at time.Time) {
	w.open[name] = slices.DeleteFunc(w.open[name], func(c waiting) bool {
		if c.generation > w.seen[name] {
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

// timed returns a client whose patches of Websites are changes.
func (w *waits) timed(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption,
	) error {
		at := time.Now()
		err := c.Patch(ctx, obj, patch, opts...)
		if err == nil {
			w.sent(obj.GetName(), obj.GetGeneration(), at, time.Now())
		}
		return err
	}})
}
