package labeller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
)

const (
	// Queue is the queue name of labellers in the gate's reports.
	Queue = "rota.dev/labeller"
	// mapPatience bounds how long a member that joins waits for the resources of its kinds.
	mapPatience = 10 * time.Second
	// scanDelay is longer than a slot, and with it the duty, is moving during a rollout.
	scanDelay = 30 * time.Second
	// stampGrace is how long the labeller waits for a client that labels applied children in a second request.
	stampGrace = 500 * time.Millisecond
)

// Env is the environment of Kinds. Its functions may be called concurrently.
type Env struct {
	// API is the config of the API server. Locate must not be called without one.
	API   *rest.Config
	Share *delivery.Share
	Key   slot.Key
	// Namespaces are the namespaces in which objects are labeled. If empty, all are.
	Namespaces []string
	Log        logr.Logger
	// Permit returns a Permit that lets the labeller of a kind work while this member has the duty.
	Permit func(kind schema.GroupKind) Permit
	// Report logs an error after which the labeller tries again. Emit logs a notice and creates an event for it.
	Report func(what string, err error)
	Emit   func(ctx context.Context, n member.Notify)
}

// Kinds are the labellers of this process, one for each kind and label. Labeling a kind is a duty, so it follows the
// rules of slots: one member at a time, handovers, and an expel if the member dies. Any member fixes the labels of
// objects that reach the wrong member. The rate is the default of Options.
type Kinds struct {
	// Period is the time between two checks for a kind that is not served. It must not change after Locate.
	Period time.Duration

	env Env

	mu sync.Mutex
	of []*kindLabels
}

// NewKinds returns a Kinds without labellers; Locate adds them.
func NewKinds(env Env) *Kinds { return &Kinds{env: env, Period: 5 * time.Second} }

// kindLabels writes one label on the objects of one kind, through a version that the API server serves. If that version
// is removed, it uses another.
type kindLabels struct {
	env   *Env
	find  *Finder
	kind  schema.GroupKind
	label string
	// period is Kinds.Period.
	period time.Duration

	mu  sync.Mutex
	now *served // nil while the API server does not serve the kind
	old Stats   // of earlier versions
}

// served is the labeller of a kind in one version.
type served struct {
	*Labeller
	resource schema.GroupVersionResource
	// lost receives a value when the API server no longer serves the version.
	lost chan struct{}
}

// Mislabelled implements delivery.Options.Mislabelled.
func (l *Kinds) Mislabelled(kind schema.GroupKind, obj metav1.Object) {
	for _, k := range l.all() {
		if k.kind != kind {
			continue
		}
		if s := k.served(); s != nil {
			s.Fix(s.resource, obj) // if its queue is full, there will be another call, or the scan finds the object
		}
	}
}

func (l *Kinds) all() []*kindLabels {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of
}

// Stats returns the counts by kind.
func (l *Kinds) Stats() map[schema.GroupKind]Stats {
	out := map[schema.GroupKind]Stats{}
	for _, k := range l.all() {
		out[k.kind] = add(out[k.kind], k.stats())
	}
	return out
}

// add returns the sum of the counts that metrics show.
func add(a, b Stats) Stats {
	a.Patched, a.Conflicts = a.Patched+b.Patched, a.Conflicts+b.Conflicts
	a.Throttled, a.Failures = a.Throttled+b.Throttled, a.Failures+b.Failures
	return a
}

// Locate finds the versions in which the share's kinds are served. A kind that is not served yet gets its labeller when
// it is. Run starts the labeling.
func (l *Kinds) Locate(ctx context.Context) error {
	find, err := NewFinder(l.env.API)
	if err != nil {
		return err
	}
	var all []*kindLabels
	for _, kind := range l.env.Share.Kinds() {
		for _, label := range l.env.Share.Labels(kind) {
			all = append(all, &kindLabels{env: &l.env, find: find, kind: kind, label: label, period: l.Period})
		}
	}
	soon, cancel := context.WithTimeout(ctx, mapPatience)
	defer cancel()
	for _, k := range all {
		err := k.locate(soon)
		if meta.IsNoMatchError(err) || err != nil && soon.Err() != nil {
			l.env.Log.Info("Labelling begins when the kind is served", "kind", k.kind.String(), "cause", err.Error())
			continue
		}
		if err != nil {
			return fmt.Errorf("delivery %s of kind %s: %w", l.env.Share.Delivery(), k.kind, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = all
	return nil
}

// Needs returns the permissions that the labellers need for the kinds that are served.
func (l *Kinds) Needs() (needs []permission.Error) {
	for _, k := range l.all() {
		if s := k.served(); s != nil {
			needs = append(needs, s.Needs()...)
		}
	}
	return needs
}

// Len returns the number of labellers.
func (l *Kinds) Len() int { return len(l.all()) }

// Run labels until ctx ends.
func (l *Kinds) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, k := range l.all() {
		group.Go(func() { k.run(ctx) })
	}
	group.Wait()
}

// run labels until ctx ends.
func (k *kindLabels) run(ctx context.Context) {
	for ctx.Err() == nil {
		s := k.served()
		if s == nil {
			if k.locate(ctx) != nil {
				_ = await.Sleep(ctx, k.period)
				continue
			}
			s = k.served()
			k.env.Log.Info("Labelling", "resource", s.resource.String())
		}
		lost, err := s.run(ctx)
		switch {
		case lost:
			if k.retire(ctx) == s.resource {
				_ = await.Sleep(ctx, k.period) // discovery lags behind, or a proxy answered
			}
		case err != nil:
			k.env.Report("Cannot label objects of "+s.resource.GroupResource().String()+"; trying again", err)
			_ = await.Sleep(ctx, k.period)
		}
	}
}

// run labels until ctx ends or the version is no longer served.
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

// retire replaces the labeller of a version that is no longer served by one for another version, if there is one, and
// reports that. It returns the resource in the served version.
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
		k.env.Log.Info("The API server does not serve the version by which objects were labelled; labelling goes on by "+
			"another",
			"was", old.String(), "is", now.String())
	case meta.IsNoMatchError(err):
		k.env.Emit(ctx, member.Notify{Reason: "KindNotServed", Warning: true, Message: fmt.Sprintf(
			"the API server does not serve %s any more, in any version: its objects are not labelled until it does again",
			old.GroupResource())})
	}
	return now
}

// locate finds the version in which the kind is served, and makes the labeller. The error is a meta.NoKindMatchError if
// no version is served.
func (k *kindLabels) locate(ctx context.Context) error {
	m, err := k.find.Mapping(ctx, k.kind)
	if err != nil {
		return err
	}
	namespaces := k.env.Namespaces
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = nil
	}
	s := &served{resource: m.Resource, lost: make(chan struct{}, 1)}
	s.Labeller, err = New(k.env.API, Options{
		Resources: []schema.GroupVersionResource{m.Resource}, Namespaces: namespaces, Permit: k.env.Permit(k.kind),
		Label: k.label,
		Value: func(obj metav1.Object) (string, bool) {
			value, ok := k.env.Share.Stamps(k.kind, obj)[k.label]
			return value, ok
		},
		ScanDelay: scanDelay, Grace: k.grace(),
		Report: func(err error) { k.env.Report("Cannot label all objects; trying again", err) },
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

func (k *kindLabels) stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return k.old
	}
	return add(k.old, k.now.Stats())
}

// grace is how long an unlabeled object may wait for its author's own write. Authors label only children.
func (k *kindLabels) grace() time.Duration {
	if k.label == sharding.HashLabel(k.env.Key, k.kind) {
		return 0
	}
	return stampGrace
}
