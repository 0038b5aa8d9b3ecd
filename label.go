package rota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/labeller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/store"
)

const (
	// labelQueue is what labellers are called where the gate names what is in flight.
	labelQueue = "rota.dev/labeller"
	// mapPatience bounds how long a member waits for the resources of its kinds before it joins, mapPeriod is the time
	// between two looks.
	mapPatience = 10 * time.Second
	mapPeriod   = 5 * time.Second
	// scanDelay is longer than a rollout keeps a slot, and the duty with it, on its way.
	scanDelay = 30 * time.Second
	// stampGrace is what a client gets that labels the children it applied by a second request.
	stampGrace = 500 * time.Millisecond
)

// labels are the labellers of this process, one for each kind and label. That of a kind works where the slot of its
// name is, a duty with the rules of a slot: one member at a time, handed over, taken from the dead. What has to be put right
// because it came to the wrong member is put right by any.
type labels struct {
	mu sync.Mutex
	of map[kindLabel]*kindLabels
}

// kindLabel is a label that objects of a kind carry.
type kindLabel struct {
	kind  schema.GroupKind
	label string
}

// kindLabels is the labeller of one.
type kindLabels struct {
	*labeller.Labeller
	kind     schema.GroupKind
	resource schema.GroupVersionResource
}

// mislabelled is delivery.Options.Mislabelled.
func (l *labels) mislabelled(kind schema.GroupKind, obj metav1.Object) {
	l.mu.Lock()
	var of []*kindLabels
	for _, k := range l.of {
		if k.kind == kind {
			of = append(of, k)
		}
	}
	l.mu.Unlock()
	for _, k := range of {
		k.Fix(k.resource, obj) // where its queue is full, this is called again, or the scan finds the object
	}
}

// stats returns what was written and what failed, by kind.
func (l *labels) stats() map[schema.GroupKind]labeller.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[schema.GroupKind]labeller.Stats, len(l.of))
	for _, k := range l.of {
		sum, s := out[k.kind], k.Stats()
		sum.Patched, sum.Conflicts = sum.Patched+s.Patched, sum.Conflicts+s.Conflicts
		sum.Throttled, sum.Failures = sum.Throttled+s.Throttled, sum.Failures+s.Failures
		out[k.kind] = sum
	}
	return out
}

// label starts the labellers, which work until end is called. Where a permission is missing, nothing is started. A kind
// that is not served yet gets its labeller once it is.
func (r *Rota) label(ctx context.Context) (end func(), err error) {
	var wanted []kindLabel
	for _, kind := range r.share.Kinds() {
		for _, label := range r.share.Labels(kind) {
			wanted = append(wanted, kindLabel{kind, label})
		}
	}
	if len(wanted) == 0 || r.rest == nil {
		return func() {}, nil
	}
	find, err := newFinder(r.rest)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, mapPatience)
	defer cancel()
	// They go on while this member leaves, as whatever else needs the labels does.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	end = func() { stop(); group.Wait() }
	var made []*kindLabels
	var late []kindLabel
	for _, w := range wanted {
		k, err := r.newLabels(soon, find, w)
		switch {
		case err == nil:
			err = k.Check(ctx)
			made = append(made, k)
		case soon.Err() != nil || meta.IsNoMatchError(err):
			late, err = append(late, w), nil
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("delivery %s of kind %s: %w", r.share.Delivery(), w.kind, err)
		}
	}
	run := func(k *kindLabels) {
		for life.Err() == nil {
			if err := k.Run(life); err != nil {
				r.report("Cannot label objects of "+k.resource.GroupResource().String()+"; trying again", err)
			}
			select {
			case <-life.Done():
			case <-time.After(mapPeriod):
			}
		}
	}
	for _, k := range made {
		group.Go(func() { run(k) })
	}
	for _, w := range late {
		r.log.Info("Labelling begins when the kind is served", "kind", w.kind.String())
		group.Go(func() {
			for life.Err() == nil {
				k, err := r.newLabels(life, find, w)
				if err == nil {
					run(k)
					return
				}
				select {
				case <-life.Done():
				case <-time.After(mapPeriod):
				}
			}
		})
	}
	return end, nil
}

func (r *Rota) newLabels(ctx context.Context, find *finder, w kindLabel) (*kindLabels, error) {
	m, err := find.mapping(ctx, w.kind)
	if err != nil {
		return nil, err
	}
	resource, namespaces := m.Resource, r.opts.LabelNamespaces
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = nil
	}
	l, err := labeller.New(r.rest, labeller.Options{
		Resources: []schema.GroupVersionResource{resource}, Namespaces: namespaces, Permit: r.permit(w.kind),
		Label: w.label,
		Value: func(obj metav1.Object) (string, bool) {
			value, ok := r.share.Stamps(w.kind, obj)[w.label]
			return value, ok
		},
		ScanDelay: scanDelay, Grace: r.grace(w.label),
		Report: func(err error) { r.report("Cannot label all objects; trying again", err) },
	})
	if err != nil {
		return nil, err
	}
	k := &kindLabels{l, w.kind, resource}
	r.labels.mu.Lock()
	defer r.labels.mu.Unlock()
	if r.labels.of == nil {
		r.labels.of = map[kindLabel]*kindLabels{}
	}
	r.labels.of[w] = k
	return k, nil
}

// grace is how long what lacks a label waits for its author's own write: only children are labelled by their authors.
func (r *Rota) grace(label string) time.Duration {
	if label == store.LabelHash || label == store.LabelNamespaceHash {
		return 0
	}
	return stampGrace
}

// permit ties the labelling of a kind to the gate of the slot of its name.
func (r *Rota) permit(kind schema.GroupKind) labeller.Permit {
	s := r.cfg.Slots.Of(slot.HashName(labelQueue, kind.String()))
	key := gate.Key{Queue: labelQueue, Name: kind.String()}
	return func(ctx context.Context) (context.Context, func(), bool) {
		batch, leave, verdict := r.gate.Enter(ctx, s, key, false)
		return batch, leave, verdict == gate.Admitted
	}
}

// finder finds the resources of kinds.
type finder struct {
	mu     sync.Mutex
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newFinder(cfg *rest.Config) (*finder, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return &finder{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))}, nil
}

// mapping returns the resource of a kind in the version that the API server prefers. Where the server does not answer it
// asks again until ctx ends.
func (f *finder) mapping(ctx context.Context, kind schema.GroupKind) (*meta.RESTMapping, error) {
	for {
		f.mu.Lock()
		m, err := f.mapper.RESTMapping(kind) // asks the server again where it knows of no match
		f.mu.Unlock()
		if err == nil {
			return m, nil
		}
		if meta.IsNoMatchError(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}
