package dispatch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// latency measures how soon informers and workers hear of changes, in one run.
func (c *cluster) latency(ctx context.Context) (out []Latency, err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.end())
		}
	}()
	for range 2 {
		s, err := c.start(ctx)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	if err := await.Sleep(ctx, 5*time.Second); err != nil { // both have slots
		return nil, err
	}
	if _, err := c.drain(ctx, servers[0], 8, 100); err != nil {
		return nil, err
	}
	var told atomic.Pointer[stopwatch]
	told.Store(newStopwatch())
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		told.Load().hears(byInformer, obj.(*corev1.ConfigMap).ResourceVersion) // of that informer
	}})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, context.Cause(ctx)
	}
	for _, x := range []struct {
		how string
		at  []*server
	}{{"workers at both dispatchers", servers}, {"all workers at one of the two", servers[:1]}} {
		watch := newStopwatch()
		told.Store(watch)
		if err := c.measure(ctx, x.at, watch); err != nil {
			return nil, err
		}
		for _, l := range watch.latencies(byInformer, byTake) {
			l.How = x.how
			out = append(out, l)
		}
	}
	return out, nil
}

const byInformer, byTake = "informer", "take"

// measure has objects change, and workers at some dispatchers hear of it.
func (c *cluster) measure(ctx context.Context, at []*server, told *stopwatch) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for n := range 16 {
		running.Go(func() { c.hear(ctx, at[n%len(at)], n, told) })
	}
	if err := await.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return c.changes(ctx, told)
}

// hear takes keys and is done with them at once.
func (c *cluster) hear(ctx context.Context, s *server, n int, told *stopwatch) {
	w := c.worker(s, n)
	defer w.close()
	for ctx.Err() == nil {
		var out wire.TakeResponse
		if err := w.call(ctx, wire.PathTake, wire.TakeRequest{Worker: w.name, WaitSeconds: 30}, &out); err != nil {
			continue
		}
		for _, take := range out.Takes {
			told.hears(byTake, take.ResourceVersion)
			_ = w.call(ctx, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil)
		}
	}
}

// changes has objects change at the rate.
func (c *cluster) changes(ctx context.Context, told *stopwatch) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / c.o.Rate))
	defer tick.Stop()
	for i, end := 0, time.Now().Add(c.o.Window); time.Now().Before(end); i++ {
		begun := time.Now()
		version, err := c.change(ctx, i%c.objects)
		if err != nil {
			return err
		}
		told.begins(version, begun)
		<-tick.C
	}
	return await.Sleep(ctx, time.Second)
}

// stopwatch notes when whom hears of which version.
type stopwatch struct {
	mu    sync.Mutex
	begun map[string]time.Time
	heard map[string]map[string]time.Time
}

func newStopwatch() *stopwatch {
	return &stopwatch{begun: map[string]time.Time{}, heard: map[string]map[string]time.Time{}}
}

func (s *stopwatch) begins(version string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[version] = at
}

func (s *stopwatch) hears(who, version string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard[who] == nil {
		s.heard[who] = map[string]time.Time{}
	}
	if _, again := s.heard[who][version]; !again {
		s.heard[who][version] = now
	}
}

// latencies sum up who heard of what when.
func (s *stopwatch) latencies(who ...string) (out []Latency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range who {
		var all []time.Duration
		for version, begun := range s.begun {
			if at, heard := s.heard[name][version]; heard {
				all = append(all, at.Sub(begun))
			}
		}
		slices.Sort(all)
		if len(all) == 0 {
			continue
		}
		at := func(q float64) time.Duration { return all[min(int(math.Ceil(q*float64(len(all))))-1, len(all)-1)] }
		out = append(out, Latency{Who: name, Count: len(all), P50: at(0.5), P99: at(0.99)})
	}
	return out
}
