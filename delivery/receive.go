package delivery

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// received handles an event of the upstream, or its end.
func (p *pump) received(e watch.Event, more bool) bool {
	if !more || e.Type == watch.Error {
		worked := p.steady == nil
		if p.nudging && time.Since(p.since) > (nudgeSeconds-1)*time.Second {
			p.source.silent.Store(true)
		}
		p.nudging = false
		p.disconnect()
		if p.initial != nil {
			// The reflector knows what to do about a list that failed.
			if more {
				p.send(e)
			}
			return false
		}
		if more {
			err := apierrors.FromObject(e.Object)
			if !unanswered(err) && !ordinary(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				p.source.inf.tell(p.ctx, err)
			}
			return p.failed(err)
		}
		if time.Since(p.since) > steadyAfter {
			p.works()
			p.open()
			return true
		}
		if !worked {
			// client-go's way to say that the connection was lost.
			err := errors.New("the watch ended within a second and had brought nothing")
			p.source.failing(RequestWatch, err, true)
			p.fruitlessly(err)
		}
		p.backoff = min(p.backoff, cutMax)
		p.later()
		return true
	}
	p.works()
	about, err := meta.Accessor(e.Object)
	if err != nil {
		// As the reflector does. What comes next moves the position past it.
		p.source.inf.share.log.Error(err, "Unable to understand a watch event", "kind", p.source.inf.kind.String(), "event", e)
		return true
	}
	version := about.GetResourceVersion()
	if p.initial != nil && !p.ordered(version) {
		return false
	}
	if e.Type == watch.Bookmark {
		p.nudging = false
		p.source.silent.Store(false)
		return p.bookmark(e, version, about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true")
	}
	p.hold(e)
	n, ok, alive := p.place(e, version)
	if !alive {
		return false
	}
	if !ok {
		p.advance(version)
		return true
	}
	p.source.count(n, p.asked)
	if !p.wanted(e, n, about) {
		if e.Type != watch.Deleted && !p.source.scope.right(about) {
			p.source.mislabelled(about)
		}
		return true
	}
	if p.initial != nil {
		if e.Type == watch.Deleted {
			delete(p.initial.listed, cache.MetaObjectToName(about).String()) // it may have left the selector
		} else {
			p.initial.note(p.source, e.Object, about)
		}
		return p.send(e)
	}
	if !p.pass(e, n, about) {
		return false
	}
	p.advance(version)
	return true
}

// ordered says whether a version in an initial list has a place in the order of the others. Where not, the reflector falls
// back to an ordinary list, and reports how that fails.
func (p *pump) ordered(version string) bool {
	s := p.source
	s.mu.Lock()
	err := s.order.check(s.inf.kind, version)
	s.mu.Unlock()
	if err != nil {
		p.disconnect()
		s.answeredList(err)
		status := apierrors.NewBadRequest(err.Error()).Status()
		p.send(watch.Event{Type: watch.Error, Object: &status})
	}
	return err == nil
}

// pass sends an event that is wanted, or keeps it back where it cannot be believed yet.
func (p *pump) pass(e watch.Event, n slot.Slot, about metav1.Object) bool {
	if p.source.outdated(e.Object, about.GetResourceVersion()) {
		if e.Type == watch.Deleted {
			// The store has its namesake. When that came, handlers heard of this one's end if they had heard of it.
			p.source.inf.missLate(n, about)
		}
		return true
	}
	return p.sendAll(p.source.doubtful(e, n, about))
}

// hold keeps every event of a kind whose objects change slots while slots are listed: the list may show an older state
// of an object than one that went elsewhere meanwhile.
func (p *pump) hold(e watch.Event) {
	s := p.source
	if !s.inf.owned() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.initial == nil && s.pump == p && !s.warming.Empty() {
		s.buffer = append(s.buffer, e)
	}
}

// wanted says whether an event of slot n goes to the store now.
func (p *pump) wanted(e watch.Event, n slot.Slot, about metav1.Object) bool {
	s, version := p.source, about.GetResourceVersion()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.initial != nil {
		s.see(n, version)
		return p.initial.set.Has(n)
	}
	switch {
	case s.pump != p: // replaced: its events would move the position of its successor
		return false
	case s.sent.newer(e.Object, version), s.outran(about): // it has gone on since
	case s.warming.Has(n):
		if s.sent == nil {
			s.buffer = append(s.buffer, e)
		}
	case s.got[n] == 0:
	case s.covered(n, version):
	case s.inf.role.orphans && s.sent.knows(e, version): // a list of other slots showed it
	default:
		s.see(n, version)
		return true
	}
	s.advance(version)
	return false
}

func (p *pump) advance(version string) {
	if p.initial != nil {
		return // the events of an initial list are in no order
	}
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	if p.source.pump == p {
		p.source.advance(version)
	}
}

func (p *pump) bookmark(e watch.Event, version string, ends bool) bool {
	s := p.source
	initial := p.initial
	if initial != nil && !ends {
		return p.send(e)
	}
	if initial != nil && !p.complete(initial, version) {
		return false
	}
	if !p.send(e) {
		return false
	}
	if initial != nil {
		s.succeeds(RequestList)
		s.succeeds(RequestWatch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pump != p {
		return false
	}
	if initial != nil {
		p.initial = nil
		s.commit(initial, version)
	}
	s.advance(version)
	return true
}

// complete adds to an initial list what exists although it did not show it.
func (p *pump) complete(r *relist, version string) bool {
	found, err := p.source.verify(p.ctx, r.set, r.listed, version)
	if err != nil {
		return false // the reflector tries again
	}
	r.strays = append(r.strays, copies(found)...)
	for _, obj := range found {
		if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
			return false
		}
	}
	return true
}
