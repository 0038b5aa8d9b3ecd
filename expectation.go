package rota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/labeller"
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
	share  *delivery.Share
	from   objects
	random *rand.Rand

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
		random: rand.New(rand.NewPCG(r.cfg.Seed, 0)), // it spreads requests
		share:  delivery.New(delivery.Options{Slots: r.cfg.Slots, Key: r.cfg.Key, Mode: sharding.Filter, Label: true})}
	for _, kind := range kinds {
		if err := e.share.Shard(kind); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// run lists the kinds again and again until the incarnation ends. The first lists come after a random time, since all
// replicas may start at once.
func (e *expectation) run(i *incarnation) {
	_ = await.Sleep(i.Context(), time.Duration(e.random.Float64()*float64(e.spread())))
	told, due := map[schema.GroupKind]string{}, map[schema.GroupKind]time.Duration{}
	for i.Context().Err() == nil {
		for _, kind := range e.kinds {
			begun := e.rota.now()
			if begun < due[kind] {
				continue
			}
			err := e.count(i.Context(), kind)
			due[kind] = e.rota.now() + e.period(e.rota.now()-begun, err)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if i.Context().Err() == nil && text != "" && text != told[kind] {
				e.rota.log.Error(err, "The shadow cannot list what there is; trying again", append(stackOf(err),
					"kind", kind.String(), "after", (due[kind]-e.rota.now()).String())...)
			}
			told[kind] = text
		}
		next := slices.Min(slices.Collect(maps.Values(due)))
		_ = await.Sleep(i.Context(), next-e.rota.now())
	}
}

// spread is the longest time before the first lists.
func (e *expectation) spread() time.Duration {
	return min(shadowSpread, cmp.Or(e.rota.opts.ScrubPeriod, shadowSpread))
}

// period returns the time from the end of a list of a kind to the next one. All kinds together take at most
// 1/scrubShare of the time. A kind that could not be listed is tried again after scrubLatest at the latest.
func (e *expectation) period(took time.Duration, err error) time.Duration {
	if set := e.rota.opts.ScrubPeriod; set > 0 {
		return set
	}
	out := max(scrubShare*time.Duration(len(e.kinds))*took, lookPeriod(e.rota.cfg.LeaseDuration))
	if err != nil {
		out = min(out, scrubLatest)
	}
	return out
}

// count lists a kind.
func (e *expectation) count(ctx context.Context, kind schema.GroupKind) (err error) {
	defer caught(&err)
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

func (*expectation) duties() []string { return nil }

// report returns what this member would have now, by the last lists.
func (e *expectation) report(*incarnation) *coverage.Report {
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
	find       *labeller.Finder
	client     metadata.Interface
	namespaces []string
}

const (
	// shadowPage is the number of objects in a page, and shadowPause the pause after one.
	shadowPage  = 500
	shadowPause = 20 * time.Millisecond
	// shadowAnswer bounds the search for a kind's resource, and each page.
	shadowAnswer = 10 * time.Second
	// shadowSpread is the longest time before the first list of a member.
	shadowSpread = 10 * time.Second
)

func (l *lister) list(ctx context.Context, kind schema.GroupKind, each func(metav1.Object)) (string, error) {
	version := ""
	m, err := l.look(ctx, kind)
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
			page, err := l.page(ctx, m.Resource, namespace, o)
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
			_ = await.Sleep(ctx, shadowPause)
		}
	}
	return version, nil
}

// look asks once: while one kind's group does not answer, the others are listed.
func (l *lister) look(ctx context.Context, kind schema.GroupKind) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shadowAnswer, errNoAnswer)
	defer cancel()
	m, err := l.find.Look(ctx, kind)
	return m, unanswered(ctx, err)
}

func (l *lister) page(ctx context.Context, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shadowAnswer, errNoAnswer)
	defer cancel()
	out, err := l.client.Resource(of).Namespace(namespace).List(ctx, o)
	return out, unanswered(ctx, err)
}

var errNoAnswer = fmt.Errorf("the API server did not answer within %v", shadowAnswer)

// unanswered adds that to an error of a request that took too long.
func unanswered(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}
