package feed

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// driver brings a store in step with the slots that the share wants.
type driver struct{ *Source }

// drive brings the store in step with the slots that the share wants, one step at a time, until ctx ends. It compares
// states and takes no requests: if a slot is lost and regained before drive gets to it, it stays.
func (d *driver) drive(ctx context.Context) {
	turns := memberTurns{ahead: d.inf.share.options.Ahead}
	for ctx.Err() == nil {
		t := d.next()
		if t.Kind == stream.Grow && !d.selects() && !turns.come(d.inf.share.urgent(t.Set)) {
			select {
			case <-d.kick:
			case <-time.After(turnLook):
			case <-ctx.Done():
			}
			continue // slots may have come or gone
		}
		turns.reset()
		switch t.Kind {
		case stream.Nothing:
			select {
			case <-d.kick:
			case <-ctx.Done():
			}
		case stream.Drop:
			d.drop(ctx, t)
		case stream.Settle:
			d.makeReady(ctx, t)
		case stream.Grow:
			d.grow(ctx, t)
		}
	}
}

// drop removes the objects of lost slots from the store. After the barrier the index shows all of them.
func (d *driver) drop(ctx context.Context, t stream.Task) {
	defer d.observe()()
	if _, err := d.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	d.leavesCache(t.Set)
	lost := d.stored(t.Set, "")
	d.do(ctx, t, func(p *pump) bool { return p.remove(lost, markLost, "") })
	d.inf.TakeMissed(t.Set.Minus(d.inf.share.Held()))
}

// makeReady marks slots as ready once the store holds everything that the stream sent of them.
func (d *driver) makeReady(ctx context.Context, t stream.Task) {
	settling, fresh, ok := d.settle(t)
	if !ok {
		return
	}
	if _, err := d.barrier(ctx, fresh); err != nil {
		return
	}
	d.inf.share.options.Missed(d.inf, t.Set)
	if late := d.settled(t, settling); !late.Empty() {
		d.inf.share.options.Complete(d.inf, late)
	}
}

// grow lists the slots while their events wait in a buffer. Then the pump sends, in this order: the objects listed,
// deletions of objects that the list does not show, and the events from the buffer.
//
// If the watch does not bring these slots' events, a watch that does replaces it first, from the same position. The
// list is newer than that position.
func (d *driver) grow(ctx context.Context, t stream.Task) {
	defer d.observe()()
	if !d.warm(t) {
		return
	}
	d.do(ctx, t, func(p *pump) bool {
		p.widen(t.Set)
		return true
	})
	// The pump may have sent events of slots that are carried already. The store must hold those before it is compared
	// with the list.
	if _, err := d.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	begun := time.Now()
	l, err := d.list(ctx, t)
	if err == nil {
		d.inf.share.Log.V(1).Info("Listed slots on their way here", "kind", d.inf.Kind.String(), "objects", len(l.items),
			"took", time.Since(begun).String())
	}
	for err == nil {
		var rest map[stream.Name]stream.Place
		d.do(ctx, t, func(p *pump) bool {
			if rest = d.unverified(t, l); len(rest) > 0 {
				return true
			}
			if l.cached {
				d.check(func() bool { d.usesCache(t.Set, l.version); return true })
			} else {
				d.leavesCache(t.Set)
				d.listed()
			}
			return p.use(t, l)
		})
		if len(rest) == 0 {
			return
		}
		err = d.verifyUnlisted(ctx, t, l, rest)
	}
	if NotServed(err) {
		d.growAbsent(ctx, t)
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
		if news := s.item(o); !news || (had || s.inf.beside(t.Set, obj)) && s.same(o) {
			continue
		}
		if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
			return false
		}
	}
	s.listing(l.version)
	if len(old) > 0 && s.inf.Role.Owned() && !p.flush() { // the owners that the marks name are those that the store has
		return false
	}
	if !p.remove(old, markMissing, l.version) {
		return false
	}
	return p.endWarming(t, l.version, l.Strays())
}

// unverified returns the objects that the store may have in a task's slots although neither the list nor a look-up
// showed them.
func (d *driver) unverified(t stream.Task, l *listing) map[stream.Name]stream.Place {
	rest := d.unlisted(t.Carried, l.version, l.Listed)
	maps.DeleteFunc(rest, func(name stream.Name, is stream.Place) bool {
		uid, verified := l.verified[name]
		return verified && uid == is.UID // and not a namesake's
	})
	return rest
}

// growAbsent has the stream carry slots although their kind is not served: there are no objects of it. Objects that the
// store has stay. Everything is listed once the watch can be opened again.
func (d *driver) growAbsent(ctx context.Context, t stream.Task) {
	d.do(ctx, t, func(p *pump) bool {
		if !p.endWarming(t, d.vacate(), nil) {
			return false
		}
		p.reopen() // it may still be open
		return true
	})
}

// same reports whether the store has this very version of an object. It is false for objects that move: the stream
// tracks those itself.
func (s *Source) same(o stream.Object) bool {
	if s.inf.Role.Owned() {
		return false
	}
	old, exists, err := s.inf.GetIndexer().GetByKey(o.Name.String())
	return err == nil && exists && VersionOf(old) == o.Version
}

// endWarming ends the warming of a task's slots. The pump calls it on its own goroutine, so that no event comes in
// between.
func (p *pump) endWarming(t stream.Task, version string, strays []stream.Object) bool {
	s := p.source
	outs, v, ok := s.release(p, t, version, strays)
	if !ok {
		return false
	}
	s.heed(v)
	if !p.emit(outs) {
		return false
	}
	s.look()
	return true
}

// VersionOf returns an object's resourceVersion.
func VersionOf(obj any) string {
	about, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return about.GetResourceVersion()
}

// job is a function that runs on the pump's goroutine, to send events.
type job struct {
	run  func(*pump) bool
	done chan bool // true: all of it was sent
}

// remove sends marked deletions of objects: of slots that were lost (markLost), or of objects that a list at a version
// did not show (markMissing).
func (p *pump) remove(names map[stream.Name]stream.Place, mark, listed string) bool {
	s := p.source
	version := s.at()
	for name, was := range names {
		if !s.lacks(name, was.Slot, listed) {
			continue
		}
		uid := mark
		if mark == markMissing {
			uid += was.Slot.String()
		}
		obj := s.inf.mark.object(types.UID(uid), name.Namespace, name.Name, version)
		if mark == markMissing {
			s.inf.copyOwners(obj, name.String())
		}
		if !p.send(watch.Event{Type: watch.Deleted, Object: obj}) {
			return false
		}
	}
	return true
}

// do has the pump run a job, as soon as there is a pump. The job does not run if a list of everything overtakes it. If
// the pump ends halfway, such a list follows.
func (s *Source) do(ctx context.Context, t stream.Task, run func(*pump) bool) {
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		return !s.isFor(p, t) || run(p)
	}}
	select {
	case s.jobs <- j:
		<-j.done
	case <-ctx.Done():
	}
}

// barrier returns when the store holds everything that was sent before the call, and returns the barrier's number. From
// the barrier on, handlers believe events of the fresh slots. It may be called concurrently. The error is ErrStopped or
// ctx's cause.
func (s *Source) barrier(ctx context.Context, fresh slot.Set) (uint64, error) {
	var b barrier
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		b = p.raise(fresh)
		return b.sent
	}}
	select {
	case s.jobs <- j:
	case <-s.done:
		return 0, ErrStopped
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	<-j.done
	if !s.inf.await(b, s.done) {
		return 0, ErrStopped
	}
	return b.serial, nil
}

// flush waits until the store holds everything that was sent. Nothing is sent meanwhile.
func (p *pump) flush() bool { return p.source.inf.await(p.raise(slot.Set{}), p.source.done) }

func (p *pump) raise(fresh slot.Set) barrier {
	i := p.source.inf
	return i.raise(fresh, func(serial uint64) bool {
		return p.send(watch.Event{Type: watch.Deleted, Object: i.mark.barrier(serial, p.source.at())})
	})
}

// copyOwners copies the owner references of an object of an owned kind to the mark that replaces it: the owner has to
// hear of the deletion.
func (i *Informer) copyOwners(mark runtime.Object, key string) {
	if !i.Role.Owned() {
		return
	}
	old, exists, err := i.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return
	}
	from, fromErr := meta.Accessor(old)
	to, toErr := meta.Accessor(mark)
	if fromErr == nil && toErr == nil {
		to.SetOwnerReferences(from.GetOwnerReferences())
	}
}
