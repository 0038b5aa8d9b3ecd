// Package controller tells a webhook which objects are not ready, and which are ready again. For each change that lasts
// it sends one notification, and repeats it until the receiver takes it.
//
// It is plain client-go with a dynamic informer, so that it works for every kind with a condition Ready or Available.
// Nothing in it knows of Rota.
package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Controller sends notifications about the objects of one kind. Set its fields before Run.
type Controller struct {
	// Sync tells what is new of one object. It is a field, so that it can be replaced.
	Sync func(ctx context.Context, name cache.ObjectName) error
	// Epoch returns a number that grows each time an object moves to another replica, for the receiver. ok is false if
	// there is none, as in a program with one working replica.
	Epoch func(ctx context.Context) (epoch uint64, ok bool)
	// After is how long a condition must last before it is told.
	After time.Duration

	records  records
	webhook  webhook
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a controller that is woken by the informer and posts to the URL. Records of what was sent are ConfigMaps
// beside the objects.
func New(client kubernetes.Interface, informer cache.SharedIndexInformer,
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName], url string,
) (*Controller, error) {
	c := &Controller{
		After: time.Minute, Epoch: func(context.Context) (uint64, bool) { return 0, false },
		records: records{client}, webhook: newWebhook(url), informer: informer, queue: queue,
	}
	c.Sync = c.sync
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
	})
	return c, err
}

func (c *Controller) enqueue(obj any) {
	name, err := cache.ObjectToName(obj)
	if err != nil {
		runtime.HandleError(err)
		return
	}
	c.queue.Add(name)
}

// Run starts the informer and works until ctx ends. It returns when all workers have.
func (c *Controller) Run(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	wg.Go(func() { c.informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		for range workers {
			wg.Go(func() {
				for c.next(ctx) {
				}
			})
		}
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

func (c *Controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	err := c.Sync(ctx, name)
	var later *laterError
	switch {
	case err == nil:
		c.queue.Forget(name)
	case errors.As(err, &later):
		klog.FromContext(ctx).Info("The receiver wants to be asked later", "object", name, "after", later.after)
		c.queue.AddAfter(name, later.after)
	default:
		runtime.HandleErrorWithContext(ctx, err, "Cannot tell; trying again", "object", name)
		c.queue.AddRateLimited(name)
	}
	return true
}

func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	cached, exists, err := c.informer.GetStore().GetByKey(name.String())
	if err != nil || !exists {
		return err // its record goes with it: the object owns it
	}
	obj, ok := cached.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s is a %T, not an unstructured object", name, cached)
	}
	n := notificationOf(obj)
	if n == nil {
		return nil
	}
	if left := c.After - time.Since(n.Since); left > 0 {
		c.queue.AddAfter(name, left)
		return nil
	}
	told, err := c.records.read(ctx, obj)
	if err != nil {
		return err
	}
	if told == n.ID || told == "" && n.Ready {
		return nil // it was told, or was never told to be anything but ready
	}
	epoch, moves := c.Epoch(ctx)
	if err := c.webhook.send(ctx, n, epoch, moves); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Told", "object", name, "ready", n.Ready, "id", n.ID)
	return c.records.write(ctx, obj, n.ID)
}
