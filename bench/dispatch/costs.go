package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

// costs measures what reads and watches cost the API server.
func (c *cluster) costs(ctx context.Context) (out Costs, err error) {
	const gets, changes, watchers, rounds = 5000, 600, 100, 3
	if out.Get, err = c.cost(ctx, gets, func(i int) error {
		_, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, object(i%c.objects, 0).Name, metav1.GetOptions{})
		return err
	}); err != nil {
		return out, err
	}
	list, err := c.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return out, err
	}
	if out.Cached, err = c.cost(ctx, gets, func(i int) error {
		_, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, object(i%c.objects, 0).Name,
			metav1.GetOptions{ResourceVersion: list.ResourceVersion})
		return err
	}); err != nil {
		return out, err
	}
	update := func(i int) error {
		_, err := c.change(ctx, i%c.objects)
		return err
	}
	light, err := metadata.NewForConfig(c.config)
	if err != nil {
		return out, err
	}
	selected := metav1.ListOptions{LabelSelector: "bench=yes"}
	ways := []func(context.Context) (watch.Interface, error){
		nil, func(ctx context.Context) (watch.Interface, error) {
			return c.client.CoreV1().ConfigMaps(namespace).Watch(ctx, selected)
		}, func(ctx context.Context) (watch.Interface, error) {
			return light.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Watch(ctx, selected)
		},
	}
	costs := make([][]time.Duration, len(ways))
	for range rounds {
		for i, way := range ways {
			n := watchers
			if way == nil {
				n = 0
			}
			each, err := c.watched(ctx, n, changes, update, way)
			if err != nil {
				return out, err
			}
			costs[i] = append(costs[i], each)
		}
	}
	alone := median(costs[0])
	out.Event, out.Metadata = (median(costs[1])-alone)/watchers, (median(costs[2])-alone)/watchers
	return out, nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// watched is cost with watchers of which each sees all changes.
func (c *cluster) watched(ctx context.Context, watchers, times int, do func(i int) error,
	open func(context.Context) (watch.Interface, error),
) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range watchers {
		w, err := open(ctx)
		if err != nil {
			return 0, err
		}
		running.Go(func() {
			for range w.ResultChan() { // they only have to be read
			}
		})
		defer w.Stop()
	}
	if err := await.Sleep(ctx, time.Second); err != nil { // the objects that there are
		return 0, err
	}
	return c.cost(ctx, times, do)
}

// cost returns the API server's processor time for one of several calls.
func (c *cluster) cost(ctx context.Context, times int, do func(i int) error) (time.Duration, error) {
	before, err := c.apiServerCPU(ctx)
	if err != nil {
		return 0, err
	}
	var group sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		group.Go(func() {
			for i := w; i < times; i += writers {
				if err := do(i); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if err := await.Sleep(ctx, time.Second); err != nil { // events on their way
		return 0, err
	}
	after, err := c.apiServerCPU(ctx)
	return (after - before) / time.Duration(times), err
}

func (c *cluster) apiServerCPU(ctx context.Context) (time.Duration, error) {
	text, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics of the API server: %w", err)
	}
	return time.Duration(stage.Metrics(text).Sum("process_cpu_seconds_total") * float64(time.Second)), nil
}
