package view

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/names"
)

const (
	// readEvery is the time between two reads while nothing changes: Leases run out without a change.
	readEvery = time.Second
	// readGap is the shortest time between the end of a read and the next one.
	readGap = 250 * time.Millisecond
	// readLimit bounds a read. An API server that takes longer counts as lost.
	readLimit = 5 * time.Second
)

// Watch reads a rota again and again until ctx ends: as soon as its table changes or a member says something new, and
// every second otherwise. Between two reads are 250 ms at least. Each read has 5 s.
//
// It calls tell, from one goroutine, with what each read returned: a Rota, or an error and no Rota. What is read is
// what read returns; the watches only say when. So with `get` and `list` alone it still reads every second.
func Watch(
	ctx context.Context, cfg *rest.Config, namespace, name string,
	read func(context.Context) (*Rota, error), tell func(*Rota, error),
) error {
	return watch(ctx, cfg, namespace, name, readEvery, read, tell)
}

func watch(
	ctx context.Context, cfg *rest.Config, namespace, name string, every time.Duration,
	read func(context.Context) (*Rota, error), tell func(*Rota, error),
) error {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("watch rota %s/%s: %w", namespace, name, err)
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // the next read shows this change, too
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var informers sync.WaitGroup
	defer informers.Wait()
	defer cancel()
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	for _, source := range []struct {
		resource schema.GroupVersionResource
		limit    metav1.ListOptions
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}},
		{leases, metav1.ListOptions{LabelSelector: names.LabelRota + "=" + name}},
		{leases, metav1.ListOptions{LabelSelector: names.LabelCoverage + "=" + name}},
	} {
		informer := metadatainformer.NewFilteredMetadataInformer(client, source.resource, namespace, 0, nil,
			func(o *metav1.ListOptions) {
				o.LabelSelector, o.FieldSelector = source.limit.LabelSelector, source.limit.FieldSelector
			}).Informer()
		if err := follow(informer, notify); err != nil {
			return fmt.Errorf("watch rota %s/%s: %w", namespace, name, err)
		}
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	repeat(ctx, changed, every, read, tell)
	return nil
}

// follow calls notify when an object comes, goes, or says something new. A Lease that is only renewed says nothing new.
func follow(informer cache.SharedIndexInformer, notify func()) error {
	// A watch that fails is tried again. The reads tell why.
	err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		DeleteFunc: func(any) { notify() },
		UpdateFunc: func(before, after any) {
			if news(before, after) {
				notify()
			}
		},
	})
	return err
}

// news reports whether an update is more than the renewal of a Lease.
func news(before, after any) bool {
	a, ok := before.(*metav1.PartialObjectMetadata)
	b, also := after.(*metav1.PartialObjectMetadata)
	if !ok || !also || a.Kind != "Lease" {
		return true
	}
	return a.UID != b.UID || !maps.Equal(a.Annotations, b.Annotations)
}

// repeat reads until ctx ends.
func repeat(
	ctx context.Context, changed <-chan struct{}, every time.Duration,
	read func(context.Context) (*Rota, error), tell func(*Rota, error),
) {
	gap, idle := time.NewTimer(0), time.NewTimer(0)
	defer gap.Stop()
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gap.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-idle.C:
		}
		reading, cancel := context.WithTimeout(ctx, readLimit)
		rota, err := read(reading)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			rota = nil
		}
		tell(rota, err)
		gap.Reset(readGap)
		idle.Reset(every)
	}
}
