package split

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/journal"
)

// appLabel is on the Pods of a Deployment, with its name.
const appLabel = "app"

// deployments are created and scaled, and their Pods are counted.
type deployments struct {
	client   client.Client
	replicas int32

	mu      sync.Mutex
	changes int            // so far
	created []string       // Deployments that exist and have not been scaled
	pods    map[string]int // by Deployment
	open    map[string][]change
	done    []change
}

// change is the creation of a Deployment or its scaling.
type change struct {
	want     int // Pods of the Deployment
	sent, at time.Duration
}

// watchDeployments counts Pods until stop is called.
func watchDeployments(ctx context.Context, c client.WithWatch, replicas int) (d *deployments, stop func(), err error) {
	d = &deployments{
		client: c, replicas: int32(replicas), pods: map[string]int{}, open: map[string][]change{},
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	w, err := c.Watch(ctx, list, client.InNamespace(workNamespace))
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*metav1.PartialObjectMetadata); ok && e.Type == watch.Added {
				d.saw(pod.Labels[appLabel], journal.Now())
			}
		}
	}()
	return d, w.Stop, nil
}

// saw counts a Pod.
func (d *deployments) saw(name string, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods[name]++
	var still []change
	for _, c := range d.open[name] {
		if d.pods[name] < c.want {
			still = append(still, c)
			continue
		}
		c.at = now
		d.done = append(d.done, c)
	}
	d.open[name] = still
}

// change creates a Deployment, or doubles the oldest one that was not scaled yet, by turns.
func (d *deployments) change(ctx context.Context) error {
	name, n, scale := d.next(journal.Now())
	if scale {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		return d.client.Patch(ctx, deployment(workNamespace, name, n), patch)
	}
	if err := d.client.Create(ctx, deployment(workNamespace, name, n)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created = append(d.created, name)
	return nil
}

// next decides what to change. It creates one more where none can be scaled yet.
func (d *deployments) next(now time.Duration) (name string, replicas int32, scale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	name, replicas = fmt.Sprintf("web-%05d", d.changes), d.replicas
	if scale = d.changes%2 == 0 && len(d.created) > 0; scale {
		name, replicas = d.created[0], 2*d.replicas
		d.created = d.created[1:]
	}
	d.open[name] = append(d.open[name], change{want: int(replicas), sent: now})
	return name, replicas, scale
}

// take returns how long the changes took whose Pods all exist, and how long the others have waited, and forgets both.
func (d *deployments) take(now time.Duration) (took, waiting []time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.done {
		took = append(took, c.at-c.sent)
	}
	for _, list := range d.open {
		for _, c := range list {
			waiting = append(waiting, now-c.sent)
		}
	}
	if len(took) == 0 && len(waiting) == 0 {
		err = errors.New("no Deployment was changed")
	}
	d.done, d.open = nil, map[string][]change{}
	return took, waiting, err
}

// settled says that Pods are missing, "" if none are.
func (d *deployments) settled() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, list := range d.open {
		n += len(list)
	}
	if n > 0 {
		return fmt.Sprintf("%d Deployments have too few Pods", n)
	}
	return ""
}
