package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/bench/cluster"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

// waits measures how long changes of Websites wait until their status says that they were reconciled, as somebody sees
// who watches.
type waits struct {
	mu   sync.Mutex
	open map[string][]change // by name, the older ones first
	seen map[string]int64    // the generation that the status is about
	done []time.Duration
}

// change is one that was not reconciled yet.
type change struct {
	generation int64
	at         time.Time
}

func newWaits() *waits { return &waits{open: map[string][]change{}, seen: map[string]int64{}} }

// watch follows all Websites until ctx ends.
func (w *waits) watch(ctx context.Context, c *cluster.Cluster) error {
	followed, err := cache.New(c.Config, cache.Options{Scheme: stage.Scheme(), DefaultTransform: bare})
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

// bare leaves what waits look at.
func bare(obj any) (any, error) {
	if site, ok := obj.(*webv1.Website); ok {
		return &webv1.Website{
			ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name, ResourceVersion: site.ResourceVersion},
			Status:     webv1.WebsiteStatus{ObservedGeneration: site.Status.ObservedGeneration},
		}, nil
	}
	return obj, nil
}

// sent notes a change that was sent at a time, made a generation, and is answered now.
func (w *waits) sent(name string, generation int64, at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[name] = append(w.open[name], change{generation, at})
	w.close(name, now)
}

func (w *waits) observed(name string, generation int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[name] = max(w.seen[name], generation)
	w.close(name, at)
}

// close ends the waits of changes that the status is about.
func (w *waits) close(name string, at time.Time) {
	w.open[name] = slices.DeleteFunc(w.open[name], func(c change) bool {
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

// load changes Websites at a rate until ctx ends, and waits for the answers.
func (r *runner) load(ctx context.Context, rate float64) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := make(chan error, 1)
	step := time.Duration(float64(time.Second) / rate)
	for begun, i := time.Now(), 0; ; i++ {
		if await.Sleep(ctx, time.Until(begun.Add(time.Duration(i)*step))) != nil {
			break
		}
		r.changed++
		// The stride is coprime to round numbers of Websites, so each is changed once before any is changed again.
		name, n := cluster.SiteName(r.changed*7919%r.cluster.Made()), r.changed
		wg.Go(func() {
			at := time.Now()
			obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Sites, Name: name}}
			patch := fmt.Appendf(nil, `{"spec":{"title":"The website %s, change %d of %d"}}`, name, n, at.UnixMilli())
			err := r.cluster.Client.Patch(context.WithoutCancel(ctx), obj, client.RawPatch(types.MergePatchType, patch))
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			r.waits.sent(name, obj.Generation, at, time.Now())
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return fmt.Errorf("change a Website: %w", err)
	default:
		return nil
	}
}
