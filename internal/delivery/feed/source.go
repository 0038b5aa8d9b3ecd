package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
	"github.com/rota-dev/rota/slot"
)

// ErrStopped ends waits on an informer that has stopped.
var ErrStopped = errors.New("informer stopped")

// Source is the ListerWatcher that an informer's reflector gets. It turns the API server's stream into one of the held
// slots. Package stream decides what goes to the store.
type Source struct {
	inf *Informer
	*flow
	*health
	*lister
	bookmarks
	noWatchList bool        // the upstream does not support WatchList
	on          atomic.Bool // the informer is sharded
	jobs        chan job    // what the pump should inject
	diagnosing  atomic.Bool // a diagnosis is under way
	begun       time.Time
}

var (
	_ cache.ListerWatcher            = (*Source)(nil)
	_ cache.ListerWatcherWithContext = (*Source)(nil)
)

func newSource(inf *Informer, lw cache.ListerWatcher) *Source {
	f := &flow{inf: inf, kick: make(signal, 1), suspects: make(signal, 1), done: make(chan struct{})}
	f.health = &health{flow: f, waiters: map[*waiter]struct{}{}}
	s := &Source{
		inf: inf, flow: f, health: f.health, bookmarks: bookmarks{nudges: make(signal, 1)},
		lister: &lister{inf: inf, upstream: &selecting{
			to: cache.ToListerWatcherWithContext(lw), kind: inf.Kind, unseen: inf.share.options.Unseen,
		}},
		noWatchList: clientgo.WatchListUnsupported(lw), jobs: make(chan job), begun: time.Now(),
	}
	f.health.diagnose, f.health.recheck = s.diagnose, s.recheckKind
	s.deliver(sharding.Whole)
	return s
}

// deliver sets the scope once the role of the informer is known. registry.mu is held.
func (s *Source) deliver(by sharding.Scope) {
	if by.Leaves() {
		widening := &widening{Scope: by}
		widening.wide.Store(s.inf.share.wide[s.inf.Kind])
		by = widening
	}
	s.scope = by
	s.start(stream.Config{
		Slots: int(s.inf.share.SlotCount()) + 1, // the last one is the orphans'
		Moves: s.inf.Role.Owned(), Namesakes: s.inf.share.Key() == slot.KeyUID && !s.inf.Role.Owned(), Selects: by.Leaves(),
	}, by == sharding.Whole && s.inf.Role.Owned() && s.inf.share.keepNames.Load())
}

// IsWatchListSemanticsUnSupported reports whether WatchList is not supported. client-go calls it.
func (s *Source) IsWatchListSemanticsUnSupported() bool { return s.noWatchList }

// now is the time since the source was made.
func (s *Source) now() time.Duration { return time.Since(s.begun) }

// List implements cache.Lister.
func (s *Source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// ListWithContext answers the reflector, always with a consistent read (rule R8). It returns the objects of the slots
// that were wanted when the first page was requested.
func (s *Source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !s.sharded() {
		return s.inf.Whole.list(ctx, o)
	}
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return s.recheck(ctx, o) // client-go compares WatchList with a list, in its own tests
	}
	sent := time.Now()
	list, pending, err := s.listEverything(ctx, o)
	if err != nil {
		s.answeredList(sent, err)
		return nil, err
	}
	s.Answered(nil)
	if !pending.Set.Empty() {
		if err := s.addUnlisted(ctx, list, pending); err != nil {
			return nil, err
		}
	}
	switch {
	case pending.cached: // commit notes it
	case pending.Set.Empty():
		s.answeredList(time.Time{}, nil)
	default:
		s.listed()
	}
	s.listedAll(pending, versionOfList(list))
	return list, nil
}

// listEverything begins a list of all wanted slots, and returns all of its pages as one list. It lists in pages even if
// the reflector does not: after a first list the reflector asks for everything at once.
func (s *Source) listEverything(ctx context.Context, o metav1.ListOptions) (runtime.Object, *relist, error) {
	o.ResourceVersion, o.ResourceVersionMatch = "", ""
	failed := s.failure(RequestList).err
	r := s.beginList()
	if r.Set.Empty() { // only the version is wanted
		o.Limit = 1
		list, err := s.upstream.list(ctx, sharding.Request{ListOptions: o})
		if err != nil {
			return nil, nil, err
		}
		s.measure(list, nil)
		about, err := s.keep(list, r, sharding.Everything)
		if err == nil {
			about.SetContinue("")
		}
		return list, r, err
	}
	if s.mayUseCache(r.Set, failed) {
		if list, err := s.listAll(ctx, r, s.fromCache()); err == nil {
			r.cached = true
			return list, r, nil
		}
		r = s.beginList()
	}
	o.Limit = firstPage
	list, err := s.listAll(ctx, r, sharding.Request{ListOptions: o})
	if apierrors.IsResourceExpired(err) { // the version expired before the last page was read
		r, o.Limit = s.beginList(), 0
		list, err = s.listAll(ctx, r, sharding.Request{ListOptions: o})
	}
	return list, r, err
}

func (s *Source) recheck(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	again := s.listCarried()
	list, err := s.upstream.list(ctx, sharding.Request{ListOptions: o})
	if err != nil {
		return nil, err
	}
	_, err = s.keep(list, again, sharding.Everything)
	return list, err
}

// addUnlisted adds objects that exist, although the list did not show them, to its last page.
func (s *Source) addUnlisted(ctx context.Context, list runtime.Object, r *relist) error {
	found, err := s.verify(ctx, s.unlisted(r.Set, "", r.Listed), r.Set, versionOfList(list))
	if err != nil || len(found) == 0 {
		return err
	}
	items, err := meta.ExtractList(list)
	s.adds(r.List, found)
	for _, o := range found {
		items = append(items, o.Body.(runtime.Object).DeepCopyObject())
	}
	if err == nil {
		err = meta.SetList(list, items)
	}
	if err != nil {
		return fmt.Errorf("list of %s: %w", s.inf.Kind, err)
	}
	return nil
}

// Watch implements cache.Watcher.
func (s *Source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// WatchWithContext answers the reflector with a watch of ours. The version that the reflector asks for is ignored: it
// comes from any event, injected ones included. The source knows the position.
func (s *Source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !s.sharded() {
		return s.inf.Whole.watch(ctx, o)
	}
	if sendsInitial(o) {
		if s.inf.share.options.Plain {
			return nil, apierrors.NewBadRequest("this client sends no initial events") // the reflector lists instead
		}
		return s.watchList(ctx, o)
	}
	p := newPump(ctx, s, o)
	s.goesOn(p)
	if p.over {
		// The reflector gave up a watch of ours without listing again. It has no reason to do that. Events that it had not
		// read are lost, so have it list.
		go p.expire()
		return p, nil
	}
	go p.run(nil, nil)
	return p, nil
}

// sendsInitial reports whether a watch is to begin with the state.
func sendsInitial(o metav1.ListOptions) bool {
	return o.SendInitialEvents != nil && *o.SendInitialEvents
}

// watchList opens a stream that begins with what a list would show, consistently.
func (s *Source) watchList(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p := newPump(ctx, s, o)
	initial := s.beginsWith(p)
	if initial.Set.Empty() {
		version, err := s.readVersion(p.ctx)
		s.Answered(err)
		if err != nil {
			p.abort()
			return nil, err
		}
		initial.version, initial.complete = version, true
		go p.run(nil, initial)
		return p, nil
	}
	req := sharding.Request{ListOptions: o}
	req.ResourceVersion = ""
	req.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	p.asked = s.scope.Narrow(&req, initial.Set)
	sent := time.Now()
	w, err := s.upstream.watch(p.ctx, req)
	s.Answered(err)
	if err != nil {
		s.answeredList(sent, err) // it is the list of all slots
		p.abort()
		return nil, err
	}
	go p.run(w, initial)
	return p, nil
}
