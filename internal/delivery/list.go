package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
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
	// cached: it comes from the API server's watch cache; see watchCache.
	cached bool
}

// list returns the objects of a task's slots at a version: consistently, or, if the API server fails to list them so,
// from its watch cache. The errors are those of persist.
func (s *source) list(ctx context.Context, t stream.Task) (l *listing, err error) {
	err = s.persist(ctx, t, func() error {
		share := s.inf.share
		defer share.turns.await(ctx, func() bool { return share.urgent(t.Set) })()
		sent := time.Now()
		l, err = s.listOnce(ctx, t, sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}})
		if apierrors.IsResourceExpired(err) { // the version expired before the last page was read
			l, err = s.listOnce(ctx, t, sharding.Request{})
		}
		if err == nil || !s.mayUseCache(t.Set, err) {
			return err
		}
		s.answeredList(sent, err) // before the next list, which may take long
		var cacheErr error
		if l, cacheErr = s.listOnce(ctx, t, s.fromCache()); cacheErr != nil {
			return err
		}
		l.cached = true
		return nil
	})
	return l, err
}

// verifyUnlisted adds to a list what exists in its slots although the list did not show it.
func (s *source) verifyUnlisted(ctx context.Context, t stream.Task, l *listing,
	names map[stream.Name]stream.Place,
) error {
	return s.persist(ctx, t, func() error {
		found, err := s.verify(ctx, names, t.Set, l.version)
		if err != nil {
			return err
		}
		for name, was := range names {
			l.verified[name] = was.UID
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, o := range found {
			l.Adds(s.core, o)
			o.Body = o.Body.(runtime.Object).DeepCopyObject()
			l.items = append(l.items, o)
		}
		return nil
	})
}

// persist repeats a read that a task needs until the API server answers it. That the kind can be listed is for the
// caller to note, when all of its reads have been answered. It returns the error where the kind is not
// served, errOvertaken where a list of everything came first, and ctx's cause.
func (s *source) persist(ctx context.Context, t stream.Task, read func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err, sent := errOvertaken, time.Now()
		if s.valid(t) {
			err = read()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, errOvertaken), s.answeredList(sent, err):
			return err
		}
		if apierrors.IsTooManyRequests(err) {
			backoff = max(backoff, time.Second)
		}
		s.inf.share.log.V(1).Info("Cannot list slots on their way here, trying again", "kind", s.inf.kind.String(), "error",
			err.Error(), "in", backoff.String())
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if s.outgrown(t) {
			return errOvertaken
		}
	}
}

// listOnce lists a task's slots. o says how: in pages if it has a limit.
func (s *source) listOnce(ctx context.Context, t stream.Task, o sharding.Request) (*listing, error) {
	s.mu.Lock()
	r := &relist{List: s.core.NewList(s.inf.withOrphans(t.Set))}
	s.mu.Unlock()
	items, last, err := s.pages(ctx, r, o, func() bool { return s.valid(t) })
	if err != nil {
		return nil, err
	}
	return &listing{
		List: r.List, verified: map[stream.Name]string{}, items: items, version: versionOfList(last),
	}, nil
}

// pages reads a list, and returns the objects in its slots, and its last page. Before it asks for the next page, it
// transforms what it keeps of one and drops the rest. If o has a limit, pages are as large as pageSize says.
func (s *source) pages(ctx context.Context, r *relist, o sharding.Request, valid func() bool) (
	items []stream.Object, last runtime.Object, err error,
) {
	asked := s.scope.Narrow(&o, r.Set)
	for {
		if !valid() {
			return nil, nil, errOvertaken
		}
		page, err := s.page(ctx, &o)
		if err != nil {
			return nil, nil, err
		}
		kept, about, err := s.sift(page, r, asked)
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

// page requests the next page of a list, or all of it if it has no limit.
func (s *source) page(ctx context.Context, o *sharding.Request) (runtime.Object, error) {
	if o.Limit > 0 {
		o.Limit = s.pageSize()
	}
	page, err := s.upstream.list(ctx, *o)
	if err == nil {
		s.measure(page)
	}
	return page, err
}

// outgrown reports whether slots that are not the task's have to be listed, too.
func (s *source) outgrown(t stream.Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := s.core.Wanted(s.inf.held()).Minus(t.Set)
	return !more.Empty()
}

// valid reports that no list of everything has overtaken a task.
func (s *source) valid(t stream.Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Valid(t)
}

// detach copies an item out of its list, so that the list's memory can be freed, and fills in its kind for an event.
func (s *source) detach(obj runtime.Object) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	out := to.Interface().(runtime.Object)
	gvk := s.inf.mark.example.GetObjectKind().GroupVersionKind()
	if !gvk.Empty() && out.GetObjectKind().GroupVersionKind().Empty() {
		out.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return out
}

// Lists come in pages, so that one page at a time is in memory. For each page, an API server that lists from its cache
// goes through all of the kind that remains. So pages of small objects are large. How many bytes an object has is
// measured: the first pages are small, and each is at most pageGrowth times as large as the largest before it.
//
// Large objects may come behind small ones. So a page would have at most pageSpread times its bytes if all of its
// objects were as large as those of the page with the largest, in this list or, by half, in the one before.
const (
	firstPage  = 16
	pageGrowth = 16
	pageSpread = 8
	mostPage   = 5000
	// pageBytes is about how large a page should be.
	pageBytes = 4 << 20
	// pageSamples is how many objects of a page are looked at to know how large they are.
	pageSamples = 16
)

// pageSize is how many objects the next page should have, by the sizes of those that came before.
func (s *source) pageSize() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objectBytes == 0 {
		return firstPage
	}
	return min(max(pageBytes/s.objectBytes, 1), max(pageSpread*pageBytes/s.largest, 1),
		max(firstPage, pageGrowth*s.pageLen), mostPage)
}

// measure notes how many objects a page has, and how large they are on average.
func (s *source) measure(page runtime.Object) {
	n := meta.LenList(page)
	every, seen, samples, bytes := max(1, n/pageSamples), 0, 0, 0
	_ = meta.EachListItem(page, func(obj runtime.Object) error { // the page's reader meets the same error
		if seen++; seen%every == 0 {
			samples, bytes = samples+1, bytes+sizeOf(obj)
		}
		return nil
	})
	if samples == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objectBytes, s.pageLen = int64(max(1, bytes/samples)), max(s.pageLen, int64(n))
	s.listLargest = max(s.listLargest, s.objectBytes)
	s.largest = max(s.largest, s.listLargest)
	if list, err := meta.ListAccessor(page); err == nil && list.GetContinue() == "" {
		s.largest, s.listLargest = max(s.listLargest, s.largest/2), 0
	}
}

// eachListed calls a function for each object of a consistent list of everything that the informer selects. It lists a
// page at a time, with a pause between pages, and returns the list's version. The store is not changed.
func (s *source) eachListed(ctx context.Context, pause time.Duration, do func(runtime.Object) error) (
	version string, err error,
) {
	o := sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}}
	for {
		page, err := s.page(ctx, &o)
		if err != nil {
			return "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		if err := meta.EachListItem(page, do); err != nil {
			return "", err
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return list.GetResourceVersion(), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// sizeOf returns about how many bytes an object takes in an answer.
func sizeOf(obj runtime.Object) int {
	if encoded, ok := obj.(interface{ Size() int }); ok {
		return encoded.Size() // as protobuf
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return pageBytes / firstPage
	}
	return len(text)
}
