package rota

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

const (
	// labelQueue is the queue name of labellers in the gate's reports.
	labelQueue = "rota.dev/labeller"
	// mapPatience bounds how long a member waits before it joins for the resources of its kinds.
	mapPatience = 10 * time.Second
	// scanDelay is longer than a slot, and the duty with it, is on the move in a rollout.
	scanDelay = 30 * time.Second
	// stampGrace is how long the labeller waits for a client that labels applied children by a second request.
	stampGrace = 500 * time.Millisecond
)

// labels are the labellers of this process, one for each kind and label. Labelling a kind is a duty. So the rules of
// slots apply: one member at a time, a handover, and an expel if the member dies. Any member repairs the labels of
// objects that reach the wrong member. The rate is a default of labeller.Options.
type labels struct {
	mu sync.Mutex
	of []*kindLabels
}

// kindLabels writes one label on the objects of one kind, in a version of the kind that the API server serves. If that
// version goes away, it uses another.
type kindLabels struct {
	rota  *Rota
	find  *finder
	kind  schema.GroupKind
	label string

	mu  sync.Mutex
	now *served        // nil: the API server does not serve the kind
	old labeller.Stats // of earlier versions
}

// served is the labeller of a kind in one version.
type served struct {
	*labeller.Labeller
	resource schema.GroupVersionResource
	// lost gets a value when the API server no longer serves the version.
	lost chan struct{}
}

// mislabelled is delivery.Options.Mislabelled.
func (l *labels) mislabelled(kind schema.GroupKind, obj metav1.Object) {
	for _, k := range l.all() {
		if k.kind != kind {
			continue
		}
		if s := k.served(); s != nil {
			s.Fix(s.resource, obj) // if its queue is full: there will be another call, or the scan finds the object
		}
	}
}

func (l *labels) all() []*kindLabels {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of
}

// stats returns the counts by kind.
func (l *labels) stats() map[schema.GroupKind]labeller.Stats {
	out := map[schema.GroupKind]labeller.Stats{}
	for _, k := range l.all() {
		out[k.kind] = add(out[k.kind], k.stats())
	}
	return out
}

// add returns the sums of the counts that metrics show.
func add(a, b labeller.Stats) labeller.Stats {
	a.Patched, a.Conflicts = a.Patched+b.Patched, a.Conflicts+b.Conflicts
	a.Throttled, a.Failures = a.Throttled+b.Throttled, a.Failures+b.Failures
	return a
}

// label starts the labellers, which work until end is called. If a permission is missing that this member needs, for
// them or anything else, it starts nothing and returns an error. A kind that is not served yet gets its labeller when
// it is.
func (r *Rota) label(ctx context.Context) (end func(), err error) {
	if r.rest == nil {
		return func() {}, nil
	}
	find, err := newFinder(r.rest)
	if err != nil {
		return nil, err
	}
	var all []*kindLabels
	for _, kind := range r.share.Kinds() {
		for _, label := range r.share.Labels(kind) {
			all = append(all, &kindLabels{rota: r, find: find, kind: kind, label: label})
		}
	}
	soon, cancel := context.WithTimeout(ctx, mapPatience)
	defer cancel()
	for _, k := range all {
		err := k.locate(soon)
		if meta.IsNoMatchError(err) || err != nil && soon.Err() != nil {
			r.log.Info("Labelling begins when the kind is served", "kind", k.kind.String(), "cause", err.Error())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("delivery %s of kind %s: %w", r.share.Delivery(), k.kind, err)
		}
	}
	if err := r.access(ctx, all); err != nil {
		return nil, err
	}
	r.labels.mu.Lock()
	r.labels.of = all
	r.labels.mu.Unlock()
	// They go on while this member leaves, since others still need the labels.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	for _, k := range all {
		group.Go(func() { k.run(life) })
	}
	return func() { stop(); group.Wait() }, nil
}

// run labels until ctx ends.
func (k *kindLabels) run(ctx context.Context) {
	for ctx.Err() == nil {
		s := k.served()
		if s == nil {
			if k.locate(ctx) != nil {
				pause(ctx, finderPeriod)
				continue
			}
			s = k.served()
			k.rota.log.Info("Labelling", "resource", s.resource.String())
		}
		lost, err := s.run(ctx)
		switch {
		case lost:
			if k.retire(ctx) == s.resource {
				pause(ctx, finderPeriod) // discovery lags behind, or a proxy answered
			}
		case err != nil:
			k.rota.report("Cannot label objects of "+s.resource.GroupResource().String()+"; trying again", err)
			pause(ctx, finderPeriod)
		}
	}
}

// run labels until ctx ends or the version is not served any more.
func (s *served) run(ctx context.Context) (lost bool, err error) {
	life, end := context.WithCancel(ctx)
	defer end()
	gone := make(chan bool, 1)
	go func() {
		select {
		case <-s.lost:
			end()
			gone <- true
		case <-life.Done():
			gone <- false
		}
	}()
	err = s.Run(life)
	end()
	return <-gone, err
}

// retire replaces the labeller of a version that is not served any more by one of another version, if there is one, and
// reports it. It returns the resource in the version that is served.
func (k *kindLabels) retire(ctx context.Context) (now schema.GroupVersionResource) {
	k.mu.Lock()
	old := k.now.resource
	k.old, k.now = add(k.old, k.now.Stats()), nil
	k.mu.Unlock()
	err := k.locate(ctx)
	if err == nil {
		now = k.served().resource
	}
	switch {
	case err == nil && now != old:
		k.rota.log.Info("The API server does not serve the version by which objects were labelled; labelling goes on by "+
			"another",
			"was", old.String(), "is", now.String())
	case meta.IsNoMatchError(err):
		k.rota.tell(ctx, member.Notify{Reason: "KindNotServed", Warning: true, Message: fmt.Sprintf(
			"the API server does not serve %s any more, in any version: its objects are not labelled until it does again",
			old.GroupResource())})
	}
	return now
}

// locate finds the version in which the kind is served, and makes the labeller. The error is a meta.NoKindMatchError if
// no version is served.
func (k *kindLabels) locate(ctx context.Context) error {
	m, err := k.find.mapping(ctx, k.kind)
	if err != nil {
		return err
	}
	r, namespaces := k.rota, k.rota.opts.LabelNamespaces
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = nil
	}
	s := &served{resource: m.Resource, lost: make(chan struct{}, 1)}
	s.Labeller, err = labeller.New(r.rest, labeller.Options{
		Resources: []schema.GroupVersionResource{m.Resource}, Namespaces: namespaces, Permit: r.permit(k.kind),
		Label: k.label,
		Value: func(obj metav1.Object) (string, bool) {
			value, ok := r.share.Stamps(k.kind, obj)[k.label]
			return value, ok
		},
		ScanDelay: scanDelay, Grace: r.grace(k.kind, k.label),
		Report: func(err error) { r.report("Cannot label all objects; trying again", err) },
		NotServed: func(schema.GroupVersionResource) {
			select {
			case s.lost <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = s
	return nil
}

func (k *kindLabels) served() *served {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

func (k *kindLabels) stats() labeller.Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return k.old
	}
	return add(k.old, k.now.Stats())
}

// pause waits for a time or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// grace is how long an object without the label may wait for its author's own write: authors label children only.
func (r *Rota) grace(kind schema.GroupKind, label string) time.Duration {
	if label == delivery.HashLabel(r.cfg.Key, kind) {
		return 0
	}
	return stampGrace
}

// labelDuties begin the names of the duties of labelling a kind.
const labelDuties = table.OwnDuties + "label/"

func labelDuty(kind schema.GroupKind) string { return labelDuties + kind.String() }

// permit lets the labeller of a kind work while this member has the duty and its gate is open.
func (r *Rota) permit(kind schema.GroupKind) labeller.Permit {
	name, key := labelDuty(kind), gate.Key{Queue: labelQueue, Name: kind.String()}
	return func(ctx context.Context) (context.Context, func(), bool) {
		s, ok := r.ownSlot(name)
		if !ok {
			return nil, nil, false
		}
		batch, leave, verdict := r.gate.Enter(ctx, s, key, false)
		return batch, leave, verdict == gate.Admitted
	}
}
