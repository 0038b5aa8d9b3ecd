package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// errOvertaken is returned if everything was listed meanwhile, or more slots have to be listed.
var errOvertaken = errors.New("overtaken by another list")

// listing is a list of a task's slots.
type listing struct {
	*stream.List
	// items are transformed. The other fields of each are those that the API server's object had.
	items   []stream.Object
	version string
	// verified are the UIDs of objects that the list did not show and that were looked up since.
	verified map[stream.Name]string
	// cached is true if the list comes from the API server's watch cache; see watchCache.
	cached bool
}

// list returns the objects of a task's slots at a version: consistently, or, if the API server fails to list them so,
// from its watch cache. The errors are persist's.
func (d *driver) list(ctx context.Context, t stream.Task) (l *listing, err error) {
	err = d.persist(ctx, t, func() error {
		share := d.inf.share
		defer share.turns.await(ctx, func() bool { return share.urgent(t.Set) })()
		sent := time.Now()
		l, err = d.listOnce(ctx, t, sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}})
		if apierrors.IsResourceExpired(err) { // the version expired before the last page was read
			l, err = d.listOnce(ctx, t, sharding.Request{})
		}
		if err == nil {
			d.took.Store(int64(time.Since(sent)))
		}
		if err == nil || !d.mayUseCache(t.Set, err) {
			return err
		}
		d.answeredList(sent, err) // before the next list, which may take long
		var cacheErr error
		if l, cacheErr = d.listOnce(ctx, t, d.fromCache()); cacheErr != nil {
			return err
		}
		l.cached = true
		return nil
	})
	return l, err
}

// verifyUnlisted adds to a list what exists in its slots although the list did not show it.
func (d *driver) verifyUnlisted(ctx context.Context, t stream.Task, l *listing,
	names map[stream.Name]stream.Place,
) error {
	return d.persist(ctx, t, func() error {
		found, err := d.verify(ctx, names, t.Set, l.version)
		if err != nil {
			return err
		}
		for name, was := range names {
			l.verified[name] = was.UID
		}
		d.adds(l.List, found)
		for _, o := range found {
			o.Body = o.Body.(runtime.Object).DeepCopyObject()
			l.items = append(l.items, o)
		}
		return nil
	})
}

// persist repeats a read that a task needs until the API server answers it. That the kind can be listed is for the
// caller to note, when all of its reads have been answered. It returns the error where the kind is not served,
// errOvertaken where a list of everything came first, and ctx's cause.
func (d *driver) persist(ctx context.Context, t stream.Task, read func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err, sent := errOvertaken, time.Now()
		if d.valid(t) {
			err = read()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, errOvertaken), d.answeredList(sent, err):
			return err
		}
		if apierrors.IsTooManyRequests(err) {
			backoff = max(backoff, time.Second)
		}
		d.inf.share.Log.V(1).Info("Cannot list slots on their way here, trying again", "kind", d.inf.Kind.String(), "error",
			err.Error(), "in", backoff.String())
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if d.outgrown(t) {
			return errOvertaken
		}
	}
}

// listOnce lists a task's slots by the request o: in pages if o has a limit.
func (d *driver) listOnce(ctx context.Context, t stream.Task, o sharding.Request) (*listing, error) {
	r := d.newList(d.inf.WithOrphans(t.Set))
	items, last, err := d.pages(ctx, r, o, func() bool { return d.valid(t) })
	// A list from the watch cache may be older than the watch.
	d.listedNames(r, err == nil && o.ResourceVersion == "")
	if err != nil {
		return nil, err
	}
	return &listing{
		List: r.List, verified: map[stream.Name]string{}, items: items, version: versionOfList(last),
	}, nil
}

// pages reads a list, and returns the objects in its slots, and its last page. Before it asks for the next page, it
// transforms what it keeps of one and drops the rest. If o has a limit, pages are as large as pageSize says.
func (s *Source) pages(ctx context.Context, r *relist, o sharding.Request, valid func() bool) (
	items []stream.Object, last runtime.Object, err error,
) {
	asked := s.scope.Narrow(&o, r.Set)
	others := s.othersIn(r.Set)
	for {
		if !valid() {
			return nil, nil, errOvertaken
		}
		page, err := s.page(ctx, &o, others)
		if err != nil {
			return nil, nil, err
		}
		kept, about, err := s.sift(page, r, asked, others)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range kept {
			o.Body = s.inf.transformed(o.Body.(runtime.Object))
			items = append(items, o)
		}
		if o.Continue = about.GetContinue(); o.Continue == "" {
			return items, page, nil
		}
	}
}

// listAll lists the wanted slots, and returns the objects in them as one list.
func (s *Source) listAll(ctx context.Context, r *relist, o sharding.Request) (runtime.Object, error) {
	kept, list, err := s.pages(ctx, r, o, func() bool { return true })
	if err != nil {
		return nil, err
	}
	return list, s.replace(list, kept)
}

func versionOfList(list runtime.Object) string {
	about, err := meta.ListAccessor(list)
	if err != nil {
		return ""
	}
	return about.GetResourceVersion()
}

// keep removes objects of other slots from a list, in place.
func (s *Source) keep(list runtime.Object, r *relist, asked slot.Set) (metav1.ListInterface, error) {
	kept, about, err := s.sift(list, r, asked, nil)
	if err != nil {
		return nil, err
	}
	return about, s.replace(list, kept)
}

// replace replaces the objects of a list.
func (s *Source) replace(list runtime.Object, kept []stream.Object) error {
	items := make([]runtime.Object, len(kept))
	for i := range kept {
		items[i] = kept[i].Body.(runtime.Object)
	}
	about, err := meta.ListAccessor(list)
	if err == nil {
		err = meta.SetList(list, items)
	}
	if err != nil {
		return fmt.Errorf("list of %s: %w", s.inf.Kind, err)
	}
	// The number of remaining objects includes objects of other slots.
	about.SetRemainingItemCount(nil)
	return nil
}

// sift returns the objects of a page that are in the list's slots. They are copies, so that the memory of the others
// can be freed. removed, unless it is nil, has objects that were on the page too.
func (s *Source) sift(page runtime.Object, r *relist, asked slot.Set, removed *others) (
	kept []stream.Object, list metav1.ListInterface, err error,
) {
	list, err = meta.ListAccessor(page)
	if err != nil {
		return nil, nil, fmt.Errorf("list of %s: %w", s.inf.Kind, err)
	}
	var shown []stream.Object
	var all []stream.Name
	meet := func(o stream.Object) {
		if r.names != nil {
			all = append(all, o.Name)
		}
		if o.In {
			s.count(o.Slot, asked)
		}
	}
	if removed != nil {
		for _, about := range removed.gone {
			meet(s.object(nil, about))
		}
	}
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		about, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		o := s.object(obj, about)
		meet(o)
		if !o.In {
			return nil
		}
		if !o.Right {
			s.mislabelled(about)
		}
		if !r.Set.Has(o.Slot) {
			return nil
		}
		o.Body = s.detach(obj)
		kept = append(kept, o)
		if !o.Right {
			o.Body = obj.DeepCopyObject() // the stream keeps it
		}
		shown = append(shown, o)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list of %s: %w", s.inf.Kind, err)
	}
	return kept, list, s.shows(r, list.GetResourceVersion(), shown, all)
}

// relist is a list that the reflector asked for, page by page.
type relist struct {
	*stream.List
	names    *nameSet // of all objects; nil if they are not kept
	version  string
	complete bool
	cached   bool // it comes from the API server's watch cache
}

const (
	// turnPatience is how long a list waits for another kind's list at most. That one may be answered late, or never.
	turnPatience = 2 * time.Second
	// membersPatience is for the lists of other members; see memberTurns.
	membersPatience = 2 * time.Second
	// turnLook is how often a list that waits looks whether it has to wait any longer.
	turnLook = 50 * time.Millisecond
)

// turns has the lists of a member that works take turns, one kind after the other, while others still work on the slots
// that are listed: what goes through all objects of several kinds at a time takes all processors, and changes of the
// member's own objects wait meanwhile.
type turns struct {
	taken chan struct{} // has a value while a list has its turn
}

func newTurns() turns { return turns{taken: make(chan struct{}, 1)} }

// await waits until no other list of this member has its turn, or until urgent returns true: then the list must not
// wait. urgent is called now and then. The caller calls done.
func (t turns) await(ctx context.Context, urgent func() bool) (done func()) {
	patience := time.NewTimer(turnPatience)
	defer patience.Stop()
	look := time.NewTicker(turnLook)
	defer look.Stop()
	for !urgent() {
		select {
		case t.taken <- struct{}{}:
			return func() { <-t.taken }
		case <-look.C:
		case <-patience.C:
			return func() {}
		case <-ctx.Done():
			return func() {}
		}
	}
	return func() {}
}

// memberTurns has the lists of members take turns, where they go through all objects: the API server's processors are
// for all of them, and for the changes of all objects. At first a member lists alone. After each membersPatience, twice
// as many list at a time: those before this one may be many, or unable to list.
type memberTurns struct {
	ahead func() int // Options.Ahead
	since time.Time  // when this member began to wait, or zero
}

// come reports whether it is this member's turn to list slots. urgent is true if they must not wait.
func (m *memberTurns) come(urgent bool) bool {
	if m.ahead == nil || urgent {
		return true
	}
	if m.since.IsZero() {
		m.since = time.Now()
	}
	together := 1 << min(time.Since(m.since)/membersPatience, 30)
	return m.ahead() < together
}

// reset ends a wait.
func (m *memberTurns) reset() { m.since = time.Time{} }

// ErrNoOrder is returned if a kind's resourceVersions cannot be compared.
var ErrNoOrder = errors.New("its resourceVersions cannot be ordered, which a share of a kind needs: see that its API " +
	"server has decimal ones, or have every member cache the kind whole (an informer of Share.NewInformer; with " +
	"controller-runtime, watch it without having it sharded)")

// order checks that the resourceVersions of a kind can be ordered. Kubernetes' own API servers use decimal numbers,
// also for custom resources. Aggregated API servers may use other texts. Numbers that all end in the same text are
// ordered by the numbers. The zero value has seen no version yet.
type order struct{ example string }

// check returns an error for a version that cannot be ordered with those before. "" stands for no version.
func (o *order) check(kind schema.GroupKind, version string) error {
	switch {
	case version == "":
		return nil
	case len(version) == len(tail(version)):
		return fmt.Errorf("%s has resourceVersion %q: %w", kind, version, ErrNoOrder)
	case o.example == "":
		o.example = version
	case tail(version) != tail(o.example):
		return fmt.Errorf("%s has resourceVersions %q and %q: %w", kind, o.example, version, ErrNoOrder)
	}
	return nil
}

// tail is what follows the digits that a version begins with.
func tail(version string) string { return strings.TrimLeft(version, "0123456789") }
