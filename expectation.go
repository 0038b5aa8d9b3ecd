package rota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// shadowText is what the work of a shadow waits for, in reports.
const shadowText = "this member is a shadow, which works on nothing"

// expectation is what a shadow knows of the objects that there are, by kind and slot. It keeps numbers only.
type expectation struct {
	rota  *Rota
	kinds []schema.GroupKind
	// share only computes: it has no informers.
	share *delivery.Share
	from  objects

	mu   sync.Mutex
	seen map[schema.GroupKind]counted
}

// objects lists the metadata of a kind, one object after the other.
type objects interface {
	// list returns the resourceVersion of the list.
	list(ctx context.Context, kind schema.GroupKind, each func(metav1.Object)) (version string, err error)
}

// counted is the last list of a kind.
type counted struct {
	digests map[slot.Slot]delivery.Digest
	// changed are the objects that changed since the list before, which was over ago, and bare those without the label of
	// SlotLabel. over is 0 for the first list.
	changed, bare map[slot.Slot]int
	over          time.Duration
	at            time.Duration
	version       string
}

func newExpectation(r *Rota, kinds []schema.GroupKind, from objects) (*expectation, error) {
	e := &expectation{rota: r, kinds: kinds, from: from, seen: map[schema.GroupKind]counted{},
		share: delivery.New(delivery.Options{Slots: r.cfg.Slots, Key: r.cfg.Key, Mode: delivery.Filter, Label: true})}
	for _, kind := range kinds {
		if err := e.share.Shard(kind); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// run lists all kinds again and again until the incarnation ends. Lists take at most 1/1000 of the time.
func (e *expectation) run(i *incarnation) {
	told := map[schema.GroupKind]string{}
	for i.ctx.Err() == nil {
		begun := e.rota.now()
		for _, kind := range e.kinds {
			err := e.count(i.ctx, kind)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if i.ctx.Err() == nil && text != "" && text != told[kind] {
				e.rota.log.Info("The shadow cannot list what there is; trying again", "kind", kind.String(), "cause", text)
			}
			told[kind] = text
		}
		pause(i.ctx, max(i.scrubPeriod(e.rota.now()-begun), lookPeriod(e.rota.cfg.LeaseDuration)))
	}
}

// count lists a kind.
func (e *expectation) count(ctx context.Context, kind schema.GroupKind) error {
	e.mu.Lock()
	before, again := e.seen[kind]
	e.mu.Unlock()
	now := counted{digests: map[slot.Slot]delivery.Digest{}, changed: map[slot.Slot]int{}, bare: map[slot.Slot]int{},
		at: e.rota.now()}
	version, err := e.from.list(ctx, kind, func(obj metav1.Object) {
		s, ok := e.share.SlotOf(kind, obj)
		if !ok {
			return
		}
		e.share.Count(kind, obj, now.digests)
		if again && resourceversion.Compare(obj.GetResourceVersion(), before.version) > 0 {
			now.changed[s]++
		}
		for label, value := range e.share.Stamps(kind, obj) {
			if obj.GetLabels()[label] != value {
				now.bare[s]++
			}
		}
	})
	if err != nil {
		return err
	}
	if now.version = version; again {
		now.over = now.at - before.at
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[kind] = now
	return nil
}

// report returns what this member would have now, by the last lists.
func (e *expectation) report() *coverage.Report {
	r := e.rota
	out := &coverage.Report{Member: r.cfg.Self.ID, Digests: coverage.Digests{}, Setup: r.setup(), Waits: shadowText,
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{}}
	mine := r.tableOf().Owned(out.Member)
	e.mu.Lock()
	defer e.mu.Unlock()
	for kind, c := range e.seen {
		would := coverage.Would{Kind: kind, Over: c.over}
		digests := maps.Clone(c.digests)
		maps.DeleteFunc(digests, func(s slot.Slot, _ delivery.Digest) bool { return !mine.Has(s) })
		for s := range digests {
			would.Objects += digests[s].Objects
			would.Changed += c.changed[s]
			would.Unlabelled += c.bare[s]
		}
		out.Digests[kind] = digests
		out.Would = append(out.Would, would)
	}
	slices.SortFunc(out.Would, coverage.Would.Compare)
	return out
}

// lister lists by the API server, in pages.
type lister struct {
	find       *finder
	client     metadata.Interface
	namespaces []string
}

const (
	// shadowPage is the number of objects in a page, and shadowPause the pause after one.
	shadowPage  = 500
	shadowPause = 20 * time.Millisecond
)

func (l *lister) list(ctx context.Context, kind schema.GroupKind, each func(metav1.Object)) (string, error) {
	version := ""
	m, err := l.find.mapping(ctx, kind)
	if meta.IsNoMatchError(err) {
		return "", fmt.Errorf("the API server does not serve kind %s: install it, or correct the kinds of NewShadow", kind)
	}
	if err != nil {
		return "", err
	}
	namespaces := l.namespaces
	if len(namespaces) == 0 || m.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		o := metav1.ListOptions{Limit: shadowPage}
		for {
			page, err := l.client.Resource(m.Resource).Namespace(namespace).List(ctx, o)
			if err != nil {
				return "", fmt.Errorf("list %s: %w", m.Resource.GroupResource(), err)
			}
			for i := range page.Items {
				each(&page.Items[i])
			}
			// The first list's is the earliest: an object that changes between two of them counts twice rather than never.
			if version == "" {
				version = page.ResourceVersion
			}
			if o.Continue = page.Continue; o.Continue == "" {
				break
			}
			pause(ctx, shadowPause)
		}
	}
	return version, nil
}
