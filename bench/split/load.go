package split

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
)

// calls are what a user of kubectl does, with how long each took.
type calls struct {
	client client.Client

	mu    sync.Mutex
	made  int // ConfigMaps, for their names
	took  map[string][]time.Duration
	fault error
}

func (c *calls) get(ctx context.Context) error {
	return c.client.Get(ctx, client.ObjectKey{Namespace: deskNamespace, Name: "desk-0"}, &corev1.ConfigMap{})
}

func (c *calls) list(ctx context.Context) error {
	var list corev1.ConfigMapList
	return c.client.List(ctx, &list, client.InNamespace(deskNamespace), client.MatchingLabels{"made": ""})
}

func (c *calls) create(ctx context.Context) error {
	c.mu.Lock()
	c.made++
	name := "made-" + strconv.Itoa(c.made)
	c.mu.Unlock()
	return c.client.Create(ctx, configMap(workNamespace, name))
}

// time makes a call and notes how long it takes.
func (c *calls) time(ctx context.Context, name string, call func(context.Context) error) {
	begun := journal.Now()
	err := call(ctx)
	took := journal.Now() - begun
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.fault = errors.Join(c.fault, fmt.Errorf("%s: %w", name, err))
		return
	}
	c.took[name] = append(c.took[name], took)
}

// take returns how long calls took, and forgets it.
func (c *calls) take() (map[string][]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took, err := c.took, c.fault
	c.took, c.fault = map[string][]time.Duration{}, nil
	return took, err
}

// load is what goes on beside the flood.
type load struct {
	o           *Options
	calls       *calls
	deployments *deployments
}

// run makes all changes and calls at their rates until ended is closed, and returns when the last call has. A slow call
// does not delay the next.
func (l *load) run(ctx context.Context, ended <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()
	every := func(rate float64, name string, call func(context.Context) error) {
		wg.Go(func() {
			period := time.Duration(float64(time.Second) / rate)
			for next := journal.Now(); ; next += period {
				if await.Sleep(ctx, next-journal.Now()) != nil {
					return
				}
				select {
				case <-ended:
					return
				default:
				}
				wg.Go(func() { l.calls.time(ctx, name, call) })
			}
		})
	}
	every(l.o.Rate, "change", l.deployments.change)
	every(l.o.Calls, "get", l.calls.get)
	every(l.o.Calls, "list", l.calls.list)
	every(l.o.Calls, "create", l.calls.create)
}
