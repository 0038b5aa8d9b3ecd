package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/slot"
)

// lister sends the requests of an informer to the API server, other than the reflector's, and reads the answers.
type lister struct {
	inf      *Informer
	upstream *selecting
	scope    sharding.Scope
	sizes
	reads reads
	took  atomic.Int64 // duration of the latest list of slots

	received, foreign atomic.Uint64
}

// The API server may refuse the label by which objects are selected, for example because of an admission policy. No
// watch that selects by the label brings such objects. So informers of their kind then ask for all objects of the kind,
// as with Filter, and keep the objects of their slots (rule R11).

// widening asks for everything while wide is true, and otherwise for what a scope asks for.
type widening struct {
	sharding.Scope
	wide atomic.Bool
}

func (w *widening) Narrow(req *sharding.Request, slots slot.Set) slot.Set {
	if w.wide.Load() {
		return sharding.Everything
	}
	return w.Scope.Narrow(req, slots)
}

func (w *widening) Right(obj metav1.Object) bool { return w.wide.Load() || w.Scope.Right(obj) }

// isWide reports whether the source asks for everything because of Widen.
func (l *lister) isWide() bool {
	scope, ok := l.scope.(*widening)
	return ok && scope.wide.Load()
}

// selects reports whether the API server is asked for fewer objects than all, by a selector.
func (l *lister) selects() bool { return l.scope != sharding.Whole && !l.isWide() }

// page requests the next page of a list, or all of it if it has no limit. by removes objects from it, unless by is nil.
func (l *lister) page(ctx context.Context, o *sharding.Request, by *others) (runtime.Object, error) {
	if o.Limit > 0 {
		o.Limit = l.pageSize()
	}
	if by != nil {
		by.reset()
		ctx = by.Into(ctx)
	}
	page, err := l.upstream.list(ctx, *o)
	if err == nil {
		l.measure(page, by)
	}
	return page, err
}

// others are the objects of other slots on a page of a list. Where the transport allows it, they are removed before the
// page is decoded.
type others struct {
	sieve.Sieve
	// bytes is the size of the page with them, or 0 if the transport has removed nothing.
	bytes int
	gone  []*metav1.ObjectMeta
}

func (o *others) reset() { o.bytes, o.gone = 0, nil }

// othersIn returns what removes the objects of other slots from the pages of a list of slots, or nil if the API server
// sends no others.
func (l *lister) othersIn(wanted slot.Set) *others {
	rest := l.inf.share.SlotCount().All().Minus(wanted)
	if l.selects() || rest.Empty() && !l.inf.Role.Owned() { // objects of owned kinds may lie nowhere
		return nil
	}
	o := &others{}
	o.Drop = func(about *metav1.ObjectMeta) bool {
		n, in := l.inf.place(about)
		return !in || !wanted.Has(n)
	}
	o.Note = func(bytes int, dropped []*metav1.ObjectMeta) {
		o.bytes += bytes
		o.gone = append(o.gone, dropped...)
	}
	return o
}

// eachListed calls a function for each object of a consistent list of everything that the informer selects. It lists a
// page at a time, with a pause between pages, and returns the list's version. The store is not changed.
func (l *lister) eachListed(ctx context.Context, pause time.Duration, do func(runtime.Object) error) (
	version string, err error,
) {
	o := sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}}
	for {
		page, err := l.page(ctx, &o, nil)
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

// detach copies an item out of its list, so that the list's memory can be freed, and fills in its kind for an event.
func (l *lister) detach(obj runtime.Object) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	out := to.Interface().(runtime.Object)
	gvk := l.inf.mark.example.GetObjectKind().GroupVersionKind()
	if !gvk.Empty() && out.GetObjectKind().GroupVersionKind().Empty() {
		out.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return out
}

// LookUp reads an object by its name, at the version atLeast or later. It returns nil if the object does not exist or
// does not match the user's selectors.
func (l *lister) LookUp(ctx context.Context, key cache.ObjectName, atLeast string) (runtime.Object, string, error) {
	set := fields.Set{"metadata.name": key.Name}
	if key.Namespace != "" {
		set["metadata.namespace"] = key.Namespace // with both, the API server reads one object instead of all
	}
	var o sharding.Request
	o.FieldSelector = set.String() // without a version: a consistent read
	if atLeast != "" {
		o.ResourceVersion, o.ResourceVersionMatch = atLeast, metav1.ResourceVersionMatchNotOlderThan
	}
	for {
		page, err := l.upstream.list(ctx, o)
		if err != nil {
			return nil, "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", l.inf.Kind, err)
		}
		var found runtime.Object
		// The ListerWatcher may have replaced our field selector by its own.
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if about, err := meta.Accessor(obj); err == nil && about.GetName() == key.Name &&
				about.GetNamespace() == key.Namespace {
				found = l.detach(obj)
			}
			return nil
		})
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", l.inf.Kind, err)
		}
		if o.Continue = list.GetContinue(); found != nil || o.Continue == "" {
			return found, list.GetResourceVersion(), nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

const (
	// Readers is how many kinds a member asks for their versions at a time.
	Readers = 4
	// readTimeout bounds such a read, so that one without an answer does not hold up the others for long.
	readTimeout = 2 * time.Second
)

// reads are the reads of a kind's present version. All callers that come before a read is sent share its answer.
type reads struct {
	mu sync.Mutex
	// next is the read that was not sent yet. running is true while a read is in flight.
	next    *read
	running bool
}

type read struct {
	done    chan struct{}
	version string
	err     error
}

// Present returns the kind's present version: the version of a consistent list that begins after the call.
func (l *lister) Present(ctx context.Context) (string, error) {
	q := &l.reads
	q.mu.Lock()
	if q.next == nil {
		q.next = &read{done: make(chan struct{})}
	}
	r := q.next
	if !q.running {
		q.running = true
		go l.readAll()
	}
	q.mu.Unlock()
	select {
	case <-r.done:
		return r.version, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// readAll sends the reads one after the other until there are no more.
func (l *lister) readAll() {
	share := l.inf.share
	for {
		share.reading <- struct{}{}
		l.reads.mu.Lock()
		r := l.reads.next
		l.reads.next = nil
		if l.reads.running = r != nil; r == nil {
			l.reads.mu.Unlock()
			<-share.reading
			return
		}
		l.reads.mu.Unlock()
		r.version, r.err = l.readShared()
		<-share.reading
		close(r.done)
	}
}

func (l *lister) readShared() (string, error) {
	ctx, cancel := l.whileRunning(readTimeout)
	defer cancel()
	return l.readVersion(ctx)
}

// whileRunning returns a context that ends with the informer, or after a time.
func (l *lister) whileRunning(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		select {
		case <-l.inf.Source.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// readVersion is present without sharing: it does not wait for others.
func (l *lister) readVersion(ctx context.Context) (string, error) {
	list, err := l.upstream.list(ctx, sharding.Request{ListOptions: metav1.ListOptions{Limit: 1}})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list of %s: %w", l.inf.Kind, err)
	}
	return about.GetResourceVersion(), nil
}

// Lists come in pages, so that one page at a time is in memory. For each page, an API server that lists from its cache
// goes through all of the kind that remains. So pages of small objects are large. How many bytes an object has is
// measured: the first pages are small, and each is at most pageGrowth times as large as the largest before it.
//
// Large objects may come behind small ones. So a page would have at most pageSpread times its bytes if all of its
// objects were as large as on the page with the largest ones, in this list or, by half, in the one before.
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

// sizes are the sizes of the pages of an informer's lists.
type sizes struct {
	mu sync.Mutex
	// objectBytes is the average size of the objects of the last page of a list, or 0 if it is not known. pageLen is how
	// many objects the longest page had.
	objectBytes, pageLen int64
	// listLargest is the largest average of a page of the list under way. largest is the largest of this list and of
	// earlier ones, of which it forgets half with each list.
	listLargest, largest int64
}

// pageSize is how many objects the next page should have, by the sizes of those that came before.
func (s *sizes) pageSize() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objectBytes == 0 {
		return firstPage
	}
	return min(max(pageBytes/s.objectBytes, 1), max(pageSpread*pageBytes/s.largest, 1),
		max(firstPage, pageGrowth*s.pageLen), mostPage)
}

// measure notes how many objects a page has, and how large they are on average. by has removed objects, unless it is
// nil.
func (s *sizes) measure(page runtime.Object, by *others) {
	n := meta.LenList(page)
	var average int
	if by != nil && by.bytes > 0 {
		n += len(by.gone)
		average = by.bytes / max(1, n)
	} else {
		average = averageOf(page, n)
	}
	if n == 0 || average == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objectBytes, s.pageLen = int64(average), max(s.pageLen, int64(n))
	s.listLargest = max(s.listLargest, s.objectBytes)
	s.largest = max(s.largest, s.listLargest)
	if list, err := meta.ListAccessor(page); err == nil && list.GetContinue() == "" {
		s.largest, s.listLargest = max(s.listLargest, s.largest/2), 0
	}
}

// averageOf returns about how many bytes an object on a page of n takes, as far as samples show.
func averageOf(page runtime.Object, n int) int {
	every, seen, samples, bytes := max(1, n/pageSamples), 0, 0, 0
	_ = meta.EachListItem(page, func(obj runtime.Object) error { // the page's reader meets the same error
		if seen++; seen%every == 0 {
			samples, bytes = samples+1, bytes+sizeOf(obj)
		}
		return nil
	})
	return bytes / max(1, samples)
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
