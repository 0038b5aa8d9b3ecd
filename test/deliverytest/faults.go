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

	"github.com/rota-dev/rota/internal/clientgo"
)

// Faulty is a ListerWatcher that misbehaves on demand. Its methods may be called concurrently.
type Faulty struct {
	inner     cache.ListerWatcherWithContext
	watchList bool

	mu       sync.Mutex
	watches  map[*faultyWatch]struct{}
	listErrs []error
	refuse   error         // of all calls; nil: they go through
	unwatch  error         // of watches; nil: they go through
	tears    []string      // how the connection breaks in the middle of the next events
	poison   string        // the version of the event that cannot be decoded; "next": that of the next one; "": none
	held     chan struct{} // lists return when it is closed; nil: at once
	inList   chan struct{} // gets a value when a list is held
	paused   chan struct{} // watches deliver when it is closed; nil: at once
	lists    int           // how many lists began, WatchLists included
	streamed int           // how many of them were WatchLists
	listed   int           // how many objects lists returned
	opened   int           // how many watches were opened
	asked    int           // how many requests there were
	failed   int           // how many of them the server itself answered with an error
}

// NewFaulty wraps a ListerWatcher. Informers use WatchList if watchList is set and the inner one knows it.
func NewFaulty(inner cache.ListerWatcher, watchList bool) *Faulty {
	return &Faulty{
		inner:     cache.ToListerWatcherWithContext(inner),
		watchList: watchList && !clientgo.LacksWatchList(inner),
		watches:   map[*faultyWatch]struct{}{}, inList: make(chan struct{}, 100),
	}
}

// IsWatchListSemanticsUnSupported is how client-go asks.
func (f *Faulty) IsWatchListSemanticsUnSupported() bool { return !f.watchList }

// FailLists makes the next lists fail.
func (f *Faulty) FailLists(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listErrs = append(f.listErrs, errs...)
}

// HoldLists makes lists ask the server at once but return only after release. inList gets a value when one waits.
func (f *Faulty) HoldLists() (inList <-chan struct{}, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return f.inList, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	}
}

// Pause holds the watches' events back until resume is called.
func (f *Faulty) Pause() (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	paused := make(chan struct{})
	f.paused = paused
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.paused = nil
		close(paused)
	}
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
func (f *Faulty) Refuse(err error) {
	f.mu.Lock()
	f.refuse = err
	f.mu.Unlock()
	if err != nil {
		f.Cut()
	}
}

// RefuseWatches answers all watches with an error, and ends those that are open; with nil, they go through again.
func (f *Faulty) RefuseWatches(err error) {
	f.mu.Lock()
	f.unwatch = err
	f.mu.Unlock()
	if err != nil {
		f.Cut()
	}
}

// Poison has the next event, and every one of the same version, be one that cannot be decoded, as client-go tells of
// it. It ends the watch.
func (f *Faulty) Poison() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.poison = "next"
}

// poisoned returns what comes in place of an event that cannot be decoded, or was not received whole.
func (f *Faulty) poisoned(e watch.Event) (watch.Event, bool) {
	about, err := meta.Accessor(e.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || e.Type == watch.Bookmark {
		return e, false
	}
	if len(f.tears) > 0 {
		why := f.tears[0]
		f.tears = f.tears[1:]
		return undecodable(why), true
	}
	if f.poison == "" {
		return e, false
	}
	if f.poison == "next" {
		f.poison = about.GetResourceVersion()
	}
	if f.poison != about.GetResourceVersion() {
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

// Tear has the next events break the connection, each in another watch, as client-go tells of it: with these words.
func (f *Faulty) Tear(why ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tears = why
}

// Counts returns how many lists have begun, and how many of them by WatchList.
func (f *Faulty) Counts() (lists, streamed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists, f.streamed
}

// Failed returns how many requests the server itself answered with an error, or watches it ended with one: one that is
// overloaded may have its watch cache lag too far behind.
func (f *Faulty) Failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *Faulty) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed++
}

// Asked returns how many requests there have been: pages of lists, look-ups and watches.
func (f *Faulty) Asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// Listed returns how many objects lists have returned, look-ups by name excluded.
func (f *Faulty) Listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}

// Watches returns how many watches have been opened, and how many are open.
func (f *Faulty) Watches() (opened, open int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, len(f.watches)
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
	f.mu.Lock()
	f.asked++
	named := o.FieldSelector != "" // the look-up of one object
	if o.Continue == "" && o.Limit != 1 && !named {
		f.lists++
	}
	err := f.refuse
	if err == nil && len(f.listErrs) > 0 {
		err, f.listErrs = f.listErrs[0], f.listErrs[1:]
	}
	held := f.held
	if named {
		held = nil
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	list, err := f.inner.ListWithContext(ctx, o)
	if err != nil && ctx.Err() == nil {
		f.fail()
	}
	if err == nil && !named && o.Limit != 1 {
		f.mu.Lock()
		f.listed += meta.LenList(list)
		f.mu.Unlock()
	}
	if held != nil {
		f.inList <- struct{}{}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return list, err
}

// Watch implements cache.Watcher.
func (f *Faulty) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *Faulty) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	f.asked++
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		f.lists++
		f.streamed++
	}
	err := f.refuse
	if err == nil {
		err = f.unwatch
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	inner, err := f.inner.WatchWithContext(ctx, o)
	if err != nil {
		f.fail()
		return nil, err
	}
	w := &faultyWatch{f: f, inner: inner, out: make(chan watch.Event), ended: make(chan *watch.Event, 1),
		stopped: make(chan struct{})}
	f.mu.Lock()
	f.watches[w] = struct{}{}
	f.opened++
	refused := f.refuse != nil || f.unwatch != nil
	f.mu.Unlock()
	go w.run()
	if refused { // since it was asked for
		w.end(nil)
	}
	return w, nil
}

type faultyWatch struct {
	f       *Faulty
	inner   watch.Interface
	out     chan watch.Event
	ended   chan *watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *faultyWatch) Stop()                          { w.once.Do(func() { close(w.stopped) }) }
func (w *faultyWatch) ResultChan() <-chan watch.Event { return w.out }

func (w *faultyWatch) end(last *watch.Event) {
	select {
	case w.ended <- last:
	default:
	}
}

func (w *faultyWatch) run() {
	defer close(w.out)
	defer func() {
		w.inner.Stop()
		w.f.mu.Lock()
		delete(w.f.watches, w)
		w.f.mu.Unlock()
	}()
	for {
		select {
		case <-w.stopped:
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
			w.f.mu.Lock()
			paused := w.f.paused
			w.f.mu.Unlock()
			if e.Type == watch.Error {
				w.f.fail()
			}
			if paused != nil {
				select {
				case <-paused:
				case <-w.stopped:
					return
				}
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
	case <-w.stopped:
		return false
	}
}
