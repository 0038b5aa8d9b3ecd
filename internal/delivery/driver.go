package delivery

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// drive brings the store in step with the slots that the share wants, one step at a time, until ctx ends. It compares
// states and takes no requests: if a slot is lost and regained before drive gets to it, it stays.
func (s *source) drive(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		t := s.core.Next(s.inf.held())
		s.mu.Unlock()
		switch t.Kind {
		case stream.Nothing:
			select {
			case <-s.kick:
			case <-ctx.Done():
			}
		case stream.Drop:
			s.drop(ctx, t)
		case stream.Settle:
			s.makeReady(ctx, t)
		case stream.Grow:
			s.grow(ctx, t)
		}
	}
}

// drop removes the objects of lost slots from the store. After the barrier the index shows all of them.
func (s *source) drop(ctx context.Context, t stream.Task) {
	defer s.observe()()
	if _, err := s.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	s.leavesCache(t.Set)
	lost := s.stored(t.Set, "")
	s.do(ctx, t, func(p *pump) bool { return p.remove(lost, markLost, "") })
	s.inf.takeMissed(t.Set.Minus(s.inf.share.Held()))
}

// makeReady marks slots as ready once the store holds what the stream has sent of them.
func (s *source) makeReady(ctx context.Context, t stream.Task) {
	s.mu.Lock()
	if !s.core.Valid(t) {
		s.mu.Unlock()
		return
	}
	settling := s.core.Settle(t)
	fresh := settling.Fresh
	for _, n := range t.Set.Slots() {
		if s.inf.arrived[n].Load() == never {
			fresh.Add(n)
		}
	}
	s.mu.Unlock()
	if _, err := s.barrier(ctx, fresh); err != nil {
		return
	}
	s.inf.share.tellMissed(s.inf, t.Set)
	s.mu.Lock()
	if !s.core.Valid(t) {
		s.mu.Unlock()
		return // a list has overtaken this; its slots are made ready after it
	}
	late := s.core.Settled(settling).Intersect(s.late)
	for _, n := range late.Slots() {
		if !s.complete(n) {
			late.Remove(n)
		}
	}
	s.without, s.late = s.without.Minus(late), s.late.Minus(late)
	s.changed()
	s.mu.Unlock()
	if !late.Empty() {
		s.inf.share.completes(s.inf, late)
	}
}

// grow lists the slots while their events wait in a buffer. Then the pump sends, in this order: the objects listed,
// deletions of objects that the list does not show, and the events from the buffer.
//
// If the watch does not bring these slots' events, a watch that does replaces it first, from the same position. The
// list is newer than that position.
func (s *source) grow(ctx context.Context, t stream.Task) {
	defer s.observe()()
	s.mu.Lock()
	if !s.core.Valid(t) {
		s.mu.Unlock()
		return
	}
	s.core.Warm(t.Set)
	s.mu.Unlock()
	s.do(ctx, t, func(p *pump) bool {
		p.widen(t.Set)
		return true
	})
	// The pump may have sent events of slots that are carried already. The store must hold those before it is compared
	// with the list.
	if _, err := s.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	begun := time.Now()
	l, err := s.list(ctx, t)
	if err == nil {
		took := time.Since(begun)
		if !l.cached {
			s.mu.Lock()
			s.took = took
			s.mu.Unlock()
		}
		s.inf.share.log.V(1).Info("Listed slots on their way here", "kind", s.inf.kind.String(), "objects", len(l.items),
			"took", took.String())
	}
	for err == nil {
		var rest map[stream.Name]stream.Place
		s.do(ctx, t, func(p *pump) bool {
			if rest = s.unverified(t, l); len(rest) > 0 {
				return true
			}
			if l.cached {
				s.mu.Lock()
				s.usesCache(t.Set, l.version)
				s.mu.Unlock()
			} else {
				s.leavesCache(t.Set)
				s.listed()
			}
			return p.use(t, l)
		})
		if len(rest) == 0 {
			return
		}
		err = s.verifyUnlisted(ctx, t, l, rest)
	}
	if notServed(err) {
		s.growAbsent(ctx, t)
	}
}

// use has a list of a task's slots go to the store. No event comes in between.
func (p *pump) use(t stream.Task, l *listing) bool {
	s := p.source
	old := s.stored(t.Carried, l.version)
	for _, o := range l.items {
		obj := o.Body.(runtime.Object)
		_, had := old[o.Name]
		delete(old, o.Name)
		s.mu.Lock()
		news := s.core.Item(o)
		s.mu.Unlock()
		if !news || (had || s.inf.beside(t.Set, obj)) && s.same(o) {
			continue
		}
		if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
			return false
		}
	}
	s.mu.Lock()
	s.core.Listing(l.version)
	s.mu.Unlock()
	if len(old) > 0 && s.inf.role.Owned() && !p.flush() { // the owners that the marks name are those that the store has
		return false
	}
	if !p.remove(old, markMissing, l.version) {
		return false
	}
	return p.endWarming(t, l.version, l.Strays())
}

// unverified returns what the store may have in the slots of a task although neither the list nor a look-up showed it.
func (s *source) unverified(t stream.Task, l *listing) map[stream.Name]stream.Place {
	rest := s.unlisted(t.Carried, l.version, l.Listed)
	maps.DeleteFunc(rest, func(name stream.Name, is stream.Place) bool {
		uid, verified := l.verified[name]
		return verified && uid == is.UID // and not a namesake's
	})
	return rest
}

// growAbsent has the stream carry slots although their kind is not served: there are no objects of it. Objects that the
// store has stay. Everything is listed once the watch can be opened again.
func (s *source) growAbsent(ctx context.Context, t stream.Task) {
	s.do(ctx, t, func(p *pump) bool {
		s.mu.Lock()
		s.stale = true
		version := s.core.Position()
		s.mu.Unlock()
		if !p.endWarming(t, version, nil) {
			return false
		}
		p.reopen() // it may still be open
		return true
	})
}

// same reports whether the store has this very version of an object. It is false for objects that move: the stream
// tracks those itself.
func (s *source) same(o stream.Object) bool {
	if s.inf.role.Owned() {
		return false
	}
	old, exists, err := s.inf.GetIndexer().GetByKey(o.Name.String())
	return err == nil && exists && versionOf(old) == o.Version
}

// endWarming ends the warming of a task's slots. The pump calls it on its own goroutine, so that no event comes in
// between.
func (p *pump) endWarming(t stream.Task, version string, strays []stream.Object) bool {
	s := p.source
	s.mu.Lock()
	if s.pump != p || !s.core.Valid(t) {
		s.mu.Unlock()
		return false
	}
	outs, v := s.core.Release(nil, t, version, strays)
	s.mu.Unlock()
	s.heed(v)
	if !p.emit(outs) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
	return true
}

func versionOf(obj any) string {
	about, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return about.GetResourceVersion()
}
