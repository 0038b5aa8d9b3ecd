package deliverytest

import (
	"context"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// Faulty is a ListerWatcher that misbehaves on demand. Its methods may be called concurrently.
type Faulty struct {
	inner     cache.ListerWatcherWithContext
	watchList bool
	inList    chan struct{} // gets a value when a list is held

	mu       sync.Mutex
	watches  map[*faultyWatch]struct{} // those that are open
	counts   Counts
	listErrs []error       // of the next lists
	refuse   error         // of all calls; nil if they go through
	unwatch  error         // of watches; nil if they go through
	tears    []string      // how the connection breaks in the middle of the next events
	poison   string        // the version of the event that cannot be decoded; "next" for that of the next one
	mute     bool          // bookmarks are dropped
	held     chan struct{} // lists return when it is closed; nil for at once
	paused   chan struct{} // watches deliver when it is closed; nil for at once
}

// Counts are the requests up to now.
type Counts struct {
	// Lists is how many lists have begun, by WatchList or not; Streamed how many by WatchList.
	Lists, Streamed int
	// Listed is how many objects lists have returned, look-ups by name excluded.
	Listed int
	// Opened is how many watches have been opened, Open how many are open.
	Opened, Open int
	// Asked is how many requests there have been: pages of lists, look-ups and watches.
	Asked int
	// Failed is how many requests the server itself answered with an error, or watches it ended with one: one that is
	// overloaded may have its watch cache lag too far behind.
	Failed int
}

// NewFaulty wraps a ListerWatcher. Informers use WatchList if watchList is set and the inner one knows it.
func NewFaulty(inner cache.ListerWatcher, watchList bool) *Faulty {
	return &Faulty{
		inner:     cache.ToListerWatcherWithContext(inner),
		watchList: watchList && !clientgo.WatchListUnsupported(inner),
		watches:   map[*faultyWatch]struct{}{}, inList: make(chan struct{}, 100),
	}
}

// IsWatchListSemanticsUnSupported is how client-go asks.
func (f *Faulty) IsWatchListSemanticsUnSupported() bool { return !f.watchList }

// Counts returns the counts.
func (f *Faulty) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Open = len(f.watches)
	return f.counts
}

func (f *Faulty) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// FailLists makes the next lists fail.
func (f *Faulty) FailLists(errs ...error) {
	f.with(func() { f.listErrs = append(f.listErrs, errs...) })
}

// HoldLists makes lists ask the server at once but return only after release. inList gets a value when one waits.
func (f *Faulty) HoldLists() (inList <-chan struct{}, release func()) {
	return f.inList, f.shut(&f.held)
}

// Pause holds the watches' events back until resume is called.
func (f *Faulty) Pause() (resume func()) { return f.shut(&f.paused) }

// DropBookmarks has the watches lose their bookmarks, as some proxies do, or no longer. The one that ends the initial
// events comes nevertheless.
func (f *Faulty) DropBookmarks(drop bool) { f.with(func() { f.mute = drop }) }

// drops reports whether an event is dropped.
func (f *Faulty) drops(e watch.Event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mute || e.Type != watch.Bookmark {
		return false
	}
	about, err := meta.Accessor(e.Object)
	return err == nil && about.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"
}

// shut shuts a gate until open is called.
func (f *Faulty) shut(gate *chan struct{}) (open func()) {
	shut := make(chan struct{})
	f.with(func() { *gate = shut })
	return func() { f.with(func() { *gate = nil; close(shut) }) }
}

// Cut ends the watches, as a lost connection does.
func (f *Faulty) Cut() { f.end(nil) }

// Expire ends the watches with 410 Gone.
func (f *Faulty) Expire() {
	status := apierrors.NewResourceExpired("injected").Status()
	f.end(&watch.Event{Type: watch.Error, Object: &status})
}

// Refuse answers all lists and watches with an error, and ends the watches that are open; with nil, calls go through
// again.
func (f *Faulty) Refuse(err error) { f.refused(&f.refuse, err) }

// RefuseWatches answers all watches with an error, and ends those that are open; with nil, they go through again.
func (f *Faulty) RefuseWatches(err error) { f.refused(&f.unwatch, err) }

func (f *Faulty) refused(which *error, err error) {
	f.with(func() { *which = err })
	if err != nil {
		f.Cut()
	}
}

// Poison has the next event, and every one of the same version, be one that cannot be decoded, as client-go reports it.
// It ends the watch.
func (f *Faulty) Poison() { f.with(func() { f.poison = "next" }) }

// Tear has the next events break the connection, each in another watch, as client-go reports it: with these words.
func (f *Faulty) Tear(why ...string) { f.with(func() { f.tears = why }) }

// poisoned returns what comes in place of an event that cannot be decoded, or was not received whole.
func (f *Faulty) poisoned(e watch.Event) (watch.Event, bool) {
	about, err := meta.Accessor(e.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil || e.Type == watch.Bookmark:
		return e, false
	case len(f.tears) > 0:
		why := f.tears[0]
		f.tears = f.tears[1:]
		return undecodable(why), true
	case f.poison == "next":
		f.poison = about.GetResourceVersion()
	}
	if f.poison == "" || f.poison != about.GetResourceVersion() {
		return e, false
	}
	return undecodable("injected"), true
}

// undecodable is how client-go reports an event that it cannot decode.
func undecodable(why string) watch.Event {
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "get", "ClientWatchDecoding")
	err := errors.New("unable to decode an event from the watch stream: " + why)
	return watch.Event{Type: watch.Error, Object: reporter.AsObject(err)}
}

func (f *Faulty) end(last *watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watches {
		w.end(last)
	}
}

// List implements cache.Lister.
func (f *Faulty) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext.
func (f *Faulty) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	named := o.FieldSelector != "" // the look-up of one object
	f.mu.Lock()
	f.counts.Asked++
	if o.Continue == "" && o.Limit != 1 && !named {
		f.counts.Lists++
	}
	err, held := f.refuse, f.held
	if err == nil && len(f.listErrs) > 0 {
		err, f.listErrs = f.listErrs[0], f.listErrs[1:]
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	list, err := f.inner.ListWithContext(ctx, o)
	f.with(func() {
		switch {
		case err != nil && ctx.Err() == nil:
			f.counts.Failed++
		case err == nil && !named && o.Limit != 1:
			f.counts.Listed += meta.LenList(list)
		}
	})
	if held != nil && !named {
		f.inList <- struct{}{}
		if !passes(held, ctx.Done()) {
			return nil, ctx.Err()
		}
	}
	return list, err
}

// passes waits until a gate opens, if it is shut. It returns false if there is a stop before that.
func passes(gate, stop <-chan struct{}) bool {
	if gate == nil {
		return true
	}
	select {
	case <-gate:
		return true
	case <-stop:
		return false
	}
}

// Watch implements cache.Watcher.
func (f *Faulty) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *Faulty) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	f.counts.Asked++
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		f.counts.Lists++
		f.counts.Streamed++
	}
	err := f.refusesWatches()
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	inner, err := f.inner.WatchWithContext(ctx, o)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.counts.Failed++
		return nil, err
	}
	out := make(chan watch.Event)
	w := &faultyWatch{watch.NewProxyWatcher(out), f, inner, out, make(chan *watch.Event, 1)}
	f.watches[w] = struct{}{}
	f.counts.Opened++
	go w.run()
	if f.refusesWatches() != nil { // since it was asked for
		w.end(nil)
	}
	return w, nil
}

// refusesWatches returns the error of watches. f.mu is held.
func (f *Faulty) refusesWatches() error {
	if f.refuse != nil {
		return f.refuse
	}
	return f.unwatch
}

type faultyWatch struct {
	*watch.ProxyWatcher
	f     *Faulty
	inner watch.Interface
	out   chan watch.Event
	ended chan *watch.Event
}

func (w *faultyWatch) end(last *watch.Event) {
	select {
	case w.ended <- last:
	default:
	}
}

func (w *faultyWatch) run() {
	defer close(w.out)
	defer w.f.with(func() { delete(w.f.watches, w) })
	defer w.inner.Stop()
	for {
		select {
		case <-w.StopChan():
			return
		case last := <-w.ended:
			if last != nil {
				w.send(*last)
			}
			return
		case e, ok := <-w.inner.ResultChan():
			if !ok {
				return
			}
			if w.f.drops(e) {
				continue
			}
			var paused chan struct{}
			w.f.with(func() {
				paused = w.f.paused
				if e.Type == watch.Error {
					w.f.counts.Failed++
				}
			})
			if !passes(paused, w.StopChan()) {
				return
			}
			e, last := w.f.poisoned(e)
			if !w.send(e) || last {
				return
			}
		}
	}
}

func (w *faultyWatch) send(e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-w.StopChan():
		return false
	}
}
