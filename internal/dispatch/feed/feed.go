// Package feed follows the objects of one kind without storing them: it passes events on, and lists page by page. A
// dispatcher turns them into keys.
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/rota-dev/rota/internal/resourceversion"
)

const (
	defaultPage     = 500
	defaultUnserved = 10 * time.Second
)

// Options configure a Feed.
type Options struct {
	// Name is the name of the kind, for logs and errors.
	Name string
	// Source lists and watches metadata only, to save memory and network.
	Source cache.ListerWatcherWithContext
	// Event is called for each event, in order, from one goroutine, with the exception in CatchUp. The callee may keep the
	// object.
	Event func(obj metav1.Object, deleted bool)
	// Missed is called when events have been missed: list everything that matters again. Missed deletions are lost. It
	// must not block.
	Missed func()
	// Page is how many objects a page of a list has. Up to two pages are in memory at a time. Default 500.
	Page   int64
	Logger logr.Logger
	// Unserved is the time between two checks whether an unserved kind is served. Default 10 s.
	Unserved time.Duration
}

// Feed follows one kind. Create it with New. Its methods may be called concurrently.
type Feed struct {
	o Options

	mu sync.Mutex
	// from is closed once events are followed, or the kind is known not to be served.
	from   chan struct{}
	begun  bool
	absent bool
	err    error // of the last request, if it failed
	// seen is the version up to which events have been passed on. moved is closed when seen rises.
	seen  string
	moved chan struct{}
}

// New returns a feed that is not running yet.
func New(o Options) *Feed {
	o.Page, o.Unserved = cmp.Or(o.Page, defaultPage), cmp.Or(o.Unserved, defaultUnserved)
	return &Feed{o: o, from: make(chan struct{}), moved: make(chan struct{})}
}

// Run follows the kind until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
	delay := backoff
	for ctx.Err() == nil {
		version, err := f.position(ctx)
		worked := false
		if err == nil {
			worked, err = f.follow(ctx, version)
		}
		if ctx.Err() != nil {
			return
		}
		if worked {
			delay = backoff
		}
		period := delay.Step()
		switch {
		case f.note(err):
			period = f.o.Unserved
		case err != nil:
			f.o.Logger.Error(err, "Cannot follow a kind; trying again", "kind", f.o.Name, "after", period.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(period):
		}
	}
}

// note records the result of a request. It returns whether the kind is not served.
func (f *Feed) note(err error) (absent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err, f.absent = err, notServed(err); f.absent {
		f.ready()
	}
	return f.absent
}

// failed records the error of a request that does not prove that the kind is not served.
func (f *Feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// ready lets lists start. It reports whether they could before. f.mu is held.
func (f *Feed) ready() (again bool) {
	if f.begun {
		return true
	}
	f.begun = true
	close(f.from)
	return false
}

// expired reports whether the API server no longer has the events since a version.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func notServed(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// position returns a version that is no older than the call.
func (f *Feed) position(ctx context.Context) (string, error) {
	list, err := f.o.Source.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.o.Name, err)
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.o.Name, err)
	}
	return about.GetResourceVersion(), nil
}

// follow passes on the events after a version, until ctx ends or some have been missed. worked reports whether a watch
// was opened.
func (f *Feed) follow(ctx context.Context, version string) (worked bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	opener := &opener{WatcherWithContext: f.o.Source, feed: f, end: end}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, version, opener)
	if err != nil {
		return false, fmt.Errorf("watch %s: %w", f.o.Name, err)
	}
	defer func() {
		w.Stop()
		<-w.Done()
		worked = opener.opened
	}()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			if mark, ok := e.Object.(bookmark); ok {
				f.reached(mark.version)
				continue
			}
			obj, err := meta.Accessor(e.Object)
			if err != nil {
				return false, fmt.Errorf("watch %s: %w", f.o.Name, err)
			}
			f.o.Event(obj, e.Type == watch.Deleted)
			f.reached(obj.GetResourceVersion())
		case watch.Error:
			err := apierrors.FromObject(e.Object)
			if expired(err) {
				f.o.Logger.Info("Events of a kind were missed, since the watch was interrupted for too long; listing again",
					"kind", f.o.Name)
				return false, nil
			}
			return false, fmt.Errorf("watch %s: %w", f.o.Name, err)
		case watch.Bookmark:
		}
	}
	return false, fmt.Errorf("watch %s: it ended: %w", f.o.Name, errors.Join(context.Cause(ctx), f.Err()))
}

// tooLargeMax is how often the API server may answer that a version is in its future before the feed takes another one.
// A watch cache that lags will catch up, but an etcd that was restored from a copy may need days.
const tooLargeMax = 6

// notServedMax is how often the API server may answer that the kind is not served before the watch ends. Watches are
// opened once a second, and a Source that switches to another version needs a few attempts: a watch of that version
// resumes where the last one was, so that nothing is missed.
const notServedMax = 15

// opener opens the watches of a RetryWatcher, which does not report failures.
type opener struct {
	cache.WatcherWithContext
	feed   *Feed
	end    context.CancelCauseFunc
	opened bool
	// tooLarge and notServed count refusals since the last open watch.
	tooLarge, notServed int
}

// WatchWithContext implements cache.WatcherWithContext. The RetryWatcher calls it from one goroutine.
func (o *opener) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := o.WatcherWithContext.WatchWithContext(ctx, opts)
	if err != nil {
		o.refused(err)
		return nil, err
	}
	o.tooLarge, o.notServed = 0, 0
	f := o.feed
	f.mu.Lock()
	f.err, f.absent = nil, false
	missed := !o.opened && f.ready()
	if !o.opened {
		f.seen = opts.ResourceVersion
		f.wake()
	}
	f.mu.Unlock()
	if o.opened = true; missed {
		f.o.Missed() // later lists show what happened before the version
	}
	return watch.Filter(w, passBookmark), nil
}

// refused handles a watch that could not be opened, and ends the RetryWatcher if retrying is useless.
func (o *opener) refused(err error) {
	switch {
	case notServed(err):
		o.feed.failed(err) // a single such answer does not prove that the kind is absent
		if o.notServed++; o.notServed >= notServedMax {
			o.feed.o.Logger.Error(err, "A kind is not followed any more, since the API server does not serve it; "+
				"checking for it periodically", "kind", o.feed.o.Name, "period", o.feed.o.Unserved.String())
			o.end(err)
		}
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		o.feed.note(err)
		if o.tooLarge++; o.tooLarge >= tooLargeMax {
			o.end(err)
		}
	default:
		o.feed.note(err)
	}
}

// bookmark is the object of a bookmark.
type bookmark struct {
	runtime.Object
	version string
}

// GetResourceVersion implements the interface that a RetryWatcher needs.
func (b bookmark) GetResourceVersion() string { return b.version }

// passBookmark makes a bookmark look like an event, so that a RetryWatcher passes it on in order instead of consuming
// it. On a quiet kind only bookmarks show how far the watch is.
func passBookmark(e watch.Event) (watch.Event, bool) {
	if e.Type == watch.Bookmark {
		if about, err := meta.Accessor(e.Object); err == nil {
			return watch.Event{Type: watch.Modified, Object: bookmark{e.Object, about.GetResourceVersion()}}, true
		}
	}
	return e, true
}

// Follows waits until Run has opened a watch, or the kind is known not to be served.
func (f *Feed) Follows(ctx context.Context) error {
	select {
	case <-f.from:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("follow %s: %w", f.o.Name, errors.Join(context.Cause(ctx), f.Err()))
	}
}

// reached records the version up to which events have been passed on.
func (f *Feed) reached(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if resourceversion.Compare(f.seen, version) < 0 {
		f.seen = version
		f.wake()
	}
}

// wake notifies waiters that seen has changed. f.mu is held.
func (f *Feed) wake() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// catchUpSeconds is the timeout of CatchUp's watch. The API server sends a bookmark two seconds before the end.
const catchUpSeconds = 3

// CatchUp returns when all events that happened before the call have been passed on. It takes about a second, in which
// it opens a second watch: Run's watch may lag, and on a quiet kind only a bookmark shows that it does not. So events
// may be passed on twice, from two goroutines, and an older one after a newer one. If the API server no longer has the
// events since the last event or bookmark, CatchUp waits for Run's watch. Bookmarks come once a minute.
func (f *Feed) CatchUp(ctx context.Context) error {
	goal, err := f.position(ctx)
	if notServed(err) && f.isAbsent() {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		f.mu.Lock()
		from, moved := f.seen, f.moved
		f.mu.Unlock()
		if from == "" {
			return fmt.Errorf("catch up with %s: it is not followed yet: %w", f.o.Name, f.Err())
		}
		if resourceversion.Compare(from, goal) >= 0 {
			return nil
		}
		err := f.catchUp(ctx, from, goal)
		if expired(err) {
			select {
			case <-moved:
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			return fmt.Errorf("catch up with %s: %w", f.o.Name, errors.Join(context.Cause(ctx), err))
		}
	}
}

// catchUp passes on the events from one version to another, or until the watch ends.
func (f *Feed) catchUp(ctx context.Context, from, goal string) error {
	seconds := int64(catchUpSeconds)
	w, err := f.o.Source.WatchWithContext(ctx, metav1.ListOptions{
		ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			obj, err := meta.Accessor(e.Object)
			if err != nil {
				return err
			}
			if e.Type != watch.Bookmark {
				f.o.Event(obj, e.Type == watch.Deleted)
			}
			f.reached(obj.GetResourceVersion())
			if resourceversion.Compare(obj.GetResourceVersion(), goal) >= 0 {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// List calls do for each object, a page at a time. It waits for Follows. Changes after the start of the call come as
// events, if they are not in the list. For a kind that is not served, it lists nothing and served is false, which does
// not prove that there are no objects. The error comes from a request or from do.
func (f *Feed) List(ctx context.Context, do func(metav1.Object) error) (served bool, err error) {
	if err := f.Follows(ctx); err != nil {
		return false, err
	}
	for {
		p := pager.New(f.o.Source.ListWithContext)
		p.PageSize, p.PageBufferSize, p.FullListIfExpired = f.o.Page, 0, false
		err := p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			about, err := meta.Accessor(obj)
			if err != nil {
				return err
			}
			return do(about)
		})
		switch {
		case err == nil:
			return true, nil
		case notServed(err) && f.isAbsent():
			return false, nil // if it is served later, Missed is called
		case apierrors.IsResourceExpired(err) && ctx.Err() == nil:
			continue // etcd compacted the version meanwhile; objects may come twice
		}
		return false, fmt.Errorf("list %s: %w", f.o.Name, err)
	}
}

func (f *Feed) isAbsent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.absent
}

// Err is the error of the last request, while Run waits to retry.
func (f *Feed) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
