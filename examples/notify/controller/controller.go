// Package controller tells people what happens to objects: that they were created, changed, fail, or were deleted.
//
// It is level-triggered: it compares each object with a record of what was told of it. What is new is written into the
// record first, then sent, then crossed out. So what was seen once is told, although the process or the receiver dies
// meanwhile. It is plain client-go, and nothing in it knows of Rota.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/examples/notify/destination"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// lagPatience is how long a sync waits for the informer to show what the record was compared with.
const lagPatience = time.Second

// Queue is the work queue of the controller.
type Queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// Controller tells what happens to the objects of one kind.
type Controller struct {
	// Sync looks at one object. As in Kubernetes' own controllers it is a field, so that it can be replaced before Run.
	Sync func(ctx context.Context, key cache.ObjectName) error

	kind         Kind
	objects      cache.SharedIndexInformer
	queue        Queue
	client       dynamic.Interface
	records      *Records
	destinations []*destination.Destination
	rules        rules

	mu sync.Mutex
	// known are records as this process last read or wrote them. They hold as long as nobody else works on the object.
	known map[cache.ObjectName]stored
}

// New returns a controller that is woken by the informer. It uses client to look at single objects.
func New(ctx context.Context, kind Kind, objects cache.SharedIndexInformer, queue Queue, client dynamic.Interface,
	records *Records, destinations []*destination.Destination,
) (*Controller, error) {
	since, err := records.since(ctx, kind)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		kind: kind, objects: objects, queue: queue, client: client, records: records, destinations: destinations,
		rules: rules{kind: kind.config, since: since}, known: map[cache.ObjectName]stored{},
	}
	for _, d := range destinations {
		c.rules.destinations = append(c.rules.destinations, d)
	}
	c.Sync = c.sync
	_, err = objects.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	})
	return c, errors.Join(err, objects.SetTransform(withoutManagedFields))
}

// withoutManagedFields saves memory.
func withoutManagedFields(obj any) (any, error) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	}
	return obj, nil
}

// Forget forgets what is known of an object's record: somebody else may have written it.
func (c *Controller) Forget(_ context.Context, key cache.ObjectName) { c.setKnown(key, nil) }

func (c *Controller) setKnown(key cache.ObjectName, s *stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil {
		delete(c.known, key)
		return
	}
	c.known[key] = *s
}

func (c *Controller) enqueue(obj any) {
	if o, ok := obj.(*unstructured.Unstructured); ok && o.GetLabels()[RecordsLabel] != "" {
		return // each notice would be one more thing to tell
	}
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil && c.kind.follows(key.Namespace) {
		c.queue.Add(key)
	}
}

// sync compares an object with its record and sends what is to be told.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) error {
	if !c.kind.follows(key.Namespace) {
		return nil // the queue may be filled by others than enqueue
	}
	obj, err := c.cached(key)
	if err != nil || obj != nil && obj.GetLabels()[RecordsLabel] != "" {
		return err
	}
	rec, err := c.recordOf(ctx, key)
	if err != nil {
		return err
	}
	if behind(obj, rec.record) {
		c.queue.AddAfter(key, lagPatience)
		return nil
	}
	d, err := c.decide(ctx, key, obj, rec.record)
	if err != nil {
		return err
	}
	if d.write {
		if rec, err = c.put(ctx, key, rec, d.record); err != nil {
			return err
		}
		for name, n := range d.dropped {
			c.drop(ctx, key, name, n)
		}
	}
	rec, wait, err := c.send(ctx, key, rec)
	if obj == nil && rec.record == nil {
		c.setKnown(key, nil)
	}
	if d.again > 0 && (wait == 0 || d.again < wait) {
		wait = d.again
	}
	// What is gone waits for the sweep. Otherwise it would keep its slot from moving on as long as the receiver is away.
	if wait > 0 && obj != nil {
		c.queue.AddAfter(key, wait)
	}
	return err
}

func (c *Controller) cached(key cache.ObjectName) (*unstructured.Unstructured, error) {
	obj, exists, err := c.objects.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		return nil, err
	}
	return obj.(*unstructured.Unstructured), nil
}

// recordOf returns the record as it is: nobody else writes it while this process works on the object.
func (c *Controller) recordOf(ctx context.Context, key cache.ObjectName) (stored, error) {
	c.mu.Lock()
	rec, known := c.known[key]
	c.mu.Unlock()
	if known {
		return rec, nil
	}
	rec, err := c.records.get(ctx, c.kind, key)
	if err == nil {
		c.setKnown(key, &rec)
	}
	return rec, err
}

func (c *Controller) put(ctx context.Context, key cache.ObjectName, old stored, rec *record) (stored, error) {
	now, err := c.records.put(ctx, c.kind, key, old, rec)
	if err != nil {
		c.setKnown(key, nil) // it may have been written, or be somebody else's
		return now, err
	}
	c.setKnown(key, &now)
	return now, nil
}

// behind says whether the informer shows an older state than the one that the record was compared with, as it may after
// a restart.
func behind(obj *unstructured.Unstructured, rec *record) bool {
	if obj == nil || rec == nil || obj.GetUID() != rec.Object.UID {
		return false
	}
	shown, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return false
	}
	compared, err := strconv.ParseUint(rec.Version, 10, 64)
	return err == nil && shown < compared
}

// decide compares the object with its record. Before it says that the object is new or gone, it asks the API server: an
// informer may be behind.
func (c *Controller) decide(ctx context.Context, key cache.ObjectName, obj *unstructured.Unstructured, rec *record,
) (decision, error) {
	compare := func(obj *unstructured.Unstructured) (decision, error) {
		if obj == nil {
			return c.rules.decide(nil, rec, time.Now()), nil
		}
		s, err := c.kind.see(obj)
		if err != nil {
			return decision{}, err
		}
		return c.rules.decide(s, rec, time.Now()), nil
	}
	d, err := compare(obj)
	if err != nil || !d.presence {
		return d, err
	}
	live, err := c.client.Resource(c.kind.resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return compare(nil)
	}
	if err != nil {
		return d, fmt.Errorf("look at %s %s: %w", c.kind, key, err)
	}
	return compare(live)
}

// send sends what waits in the record. It returns the record as it is then, and how long the first notice that has to
// wait does so; 0: none waits.
func (c *Controller) send(ctx context.Context, key cache.ObjectName, rec stored) (stored, time.Duration, error) {
	if rec.record == nil {
		return rec, 0, nil
	}
	var first time.Duration
	later := map[string]bool{} // notices of one object stay in order
	for _, e := range rec.record.clone().Outbox {
		for _, name := range e.To {
			if later[name] {
				continue
			}
			wait, err := c.sendOne(ctx, key, e.Notice, name)
			if err != nil {
				return rec, first, err
			}
			if wait > 0 {
				if later[name] = true; first == 0 || wait < first {
					first = wait
				}
				continue
			}
			next := rec.record.clone()
			next.told(e.ID, name)
			if len(next.Outbox) == 0 && (next.Gone || !c.rules.keeps(next)) {
				next = nil
			}
			if rec, err = c.put(ctx, key, rec, next); err != nil {
				return rec, first, err
			}
			if d := c.destination(name); d != nil {
				d.Settled(e.ID)
			}
		}
	}
	return rec, first, nil
}

// sendOne is destination.Tell, if the configuration still has the destination.
func (c *Controller) sendOne(ctx context.Context, key cache.ObjectName, n notice.Notice, name string,
) (time.Duration, error) {
	log := klog.FromContext(ctx).WithValues("destination", name, "event", n.Type, "object", n.Object.String(),
		"reason", n.Reason, "id", n.ID)
	d := c.destination(name)
	if d == nil {
		log.Info("The configuration has no such destination any more: the notice is dropped")
		return 0, nil
	}
	return destination.Tell(ctx, log, d, c.turn(key), "A notice", n)
}

// turn is under which name the object waits for its turn at a destination.
func (c *Controller) turn(key cache.ObjectName) string { return c.kind.String() + " " + key.String() }

// destination returns nil if the configuration has none of that name any more.
func (c *Controller) destination(name string) *destination.Destination {
	i := slices.IndexFunc(c.destinations, func(d *destination.Destination) bool { return d.Name() == name })
	if i < 0 {
		return nil
	}
	return c.destinations[i]
}

func (c *Controller) drop(ctx context.Context, key cache.ObjectName, name string, n int) {
	klog.FromContext(ctx).Error(nil, "Too many notices of one object wait: the oldest are dropped",
		"destination", name, "object", c.turn(key), "dropped", n)
	for d := c.destination(name); d != nil && n > 0; n-- {
		d.Dropped(destination.TooMany)
	}
}
