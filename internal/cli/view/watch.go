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
	// readEvery is the interval of reads while nothing changes. They are needed because Leases expire without a change.
	readEvery = time.Second
	// readGap is the minimum time between reads.
	readGap = 250 * time.Millisecond
	// readLimit bounds a read. An API server that takes longer counts as lost.
	readLimit = 5 * time.Second
)

// Watch reads a rota repeatedly until ctx ends: when its table or a member changes, and otherwise every second. There
// are at least 250 ms between reads, and each read is limited to 5 s.
//
// It calls report from one goroutine with the result of each read: a Rota, or an error and no Rota. The watches only
// trigger reads, so with only the verbs get and list it still reads every second.
func Watch(
	ctx context.Context, cfg *rest.Config, namespace, name string,
	read func(context.Context) (*Rota, error), report func(*Rota, error),
) error {
	return watch(ctx, cfg, namespace, name, readEvery, read, report)
}

func watch(
	ctx context.Context, cfg *rest.Config, namespace, name string, every time.Duration,
	read func(context.Context) (*Rota, error), report func(*Rota, error),
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
		default: // the next read includes this change
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
	repeat(ctx, changed, every, read, report)
	return nil
}

// follow calls notify when an object is added, deleted, or changed, except for a Lease that is only renewed.
func follow(informer cache.SharedIndexInformer, notify func()) error {
	// A failed watch is retried. The reads report the error.
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

// news reports whether an update is more than a Lease renewal.
func news(before, after any) bool {
	a, ok := before.(*metav1.PartialObjectMetadata)
	b, also := after.(*metav1.PartialObjectMetadata)
	if !ok || !also || a.Kind != "Lease" {
		return true
	}
	return a.UID != b.UID || !maps.Equal(a.Annotations, b.Annotations)
}

func repeat(
	ctx context.Context, changed <-chan struct{}, every time.Duration,
	read func(context.Context) (*Rota, error), report func(*Rota, error),
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
		report(rota, err)
		gap.Reset(readGap)
		idle.Reset(every)
	}
}
