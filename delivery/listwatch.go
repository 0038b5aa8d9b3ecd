package delivery

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/slot"
)

// List implements cache.Lister.
func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// ListWithContext answers the reflector: always consistently (rule R8), and with the objects of the slots that were
// wanted when the first page was asked for.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !s.sharded() {
		return s.upstream.ListWithContext(ctx, o)
	}
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return s.recheck(ctx, o) // client-go compares WatchList with a list, in its own tests
	}
	s.mu.Lock()
	if o.Continue == "" {
		s.pending = s.begin()
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	pending := s.pending
	s.mu.Unlock()
	if pending == nil {
		return nil, fmt.Errorf("list of %s continues one that never began", s.inf.kind)
	}
	s.inf.share.scope.list(&o, pending.set)
	if pending.set.Empty() {
		o.Limit = 1 // only the version is wanted
	}
	list, err := s.upstream.ListWithContext(ctx, o)
	s.answered(err)
	if err != nil {
		return nil, err
	}
	more, err := s.keep(list, pending.set, pending.sent)
	if err != nil {
		return nil, err
	}
	if pending.set.Empty() {
		more.SetContinue("")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if more.GetContinue() == "" {
		pending.version, pending.complete = more.GetResourceVersion(), true
	}
	return list, nil
}

func (s *source) recheck(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	set := s.carried()
	s.mu.Unlock()
	list, err := s.upstream.ListWithContext(ctx, o)
	if err != nil {
		return nil, err
	}
	_, err = s.keep(list, set, nil)
	return list, err
}

// keep drops what lies in other slots from a list, in place. SetList copies what stays, so that the memory of the
// rest can go. What stays is noted in sent.
func (s *source) keep(list runtime.Object, set slot.Set, sent sent) (metav1.ListInterface, error) {
	about, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", s.inf.kind, err)
	}
	var kept []runtime.Object
	s.mu.Lock()
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		if n, _, ok := s.inf.slotOf(obj); ok && set.Has(n) {
			kept = append(kept, obj)
			sent.note(s.inf, watch.Event{Type: watch.Added, Object: obj})
			s.see(n, versionOf(obj))
		}
		return nil
	})
	s.mu.Unlock()
	if err == nil {
		err = meta.SetList(list, kept)
	}
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", s.inf.kind, err)
	}
	// How many remain on the server is no longer of use.
	about.SetRemainingItemCount(nil)
	return about, nil
}

// Watch implements cache.Watcher.
func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// WatchWithContext answers the reflector with a watch of ours. What version the reflector asks for does not
// matter: it takes it from every event, those injected included. The source knows better.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !s.sharded() {
		return s.upstream.WatchWithContext(ctx, o)
	}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		return s.watchList(ctx, o)
	}
	p := newPump(ctx, s, o)
	s.mu.Lock()
	pending := s.pending
	s.pending, s.pump = nil, p
	if pending != nil && pending.complete {
		s.commit(pending, pending.version)
	} else {
		p.over = true
	}
	s.mu.Unlock()
	if p.over {
		// The reflector gave up a watch of ours without listing again, which it has no reason to do. What it had
		// not read of it is lost: make it list.
		go p.expire()
		return p, nil
	}
	go p.run(nil, nil)
	return p, nil
}

// watchList opens a stream that begins with what a list would show, consistently.
func (s *source) watchList(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p := newPump(ctx, s, o)
	s.mu.Lock()
	initial := s.begin()
	s.pending, s.pump = nil, p
	s.mu.Unlock()
	if initial.set.Empty() {
		version, err := s.present(p.ctx)
		s.answered(err)
		if err != nil {
			p.abort()
			return nil, err
		}
		initial.version, initial.complete = version, true
		go p.run(nil, initial)
		return p, nil
	}
	o.ResourceVersion = ""
	o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	s.inf.share.scope.watch(&o, initial.set)
	w, err := s.upstream.WatchWithContext(p.ctx, o)
	s.answered(err)
	if err != nil {
		p.abort()
		return nil, err
	}
	go p.run(w, initial)
	return p, nil
}

// present returns the kind's version as of now, consistently.
func (s *source) present(ctx context.Context) (string, error) {
	list, err := s.upstream.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
	}
	return about.GetResourceVersion(), nil
}
