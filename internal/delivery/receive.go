package delivery

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/stream"
)

// received handles an event of the upstream, or its end. It returns false if this watch has to end.
func (p *pump) received(e watch.Event, more bool) bool {
	if !more || e.Type == watch.Error {
		worked := p.steady == nil
		p.endNudging()
		p.disconnect()
		if p.initial != nil {
			// The reflector handles a failed list itself.
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
			// This is how client-go reports a lost connection.
			err := errors.New("the watch ended within a second and had brought nothing")
			p.source.failing(RequestWatch, time.Now(), err, true)
			p.fruitlessly(err)
		}
		p.backoff = min(p.backoff, cutMax)
		p.later()
		return true
	}
	p.works()
	about, err := meta.Accessor(e.Object)
	if err != nil {
		// The reflector does the same. The next event moves the position past this one.
		p.source.inf.share.log.Error(err, "Unable to understand a watch event", "kind", p.source.inf.kind.String(), "event",
			e)
		return true
	}
	s, version := p.source, about.GetResourceVersion()
	if p.initial != nil && !p.ordered(version) {
		return false
	}
	if e.Type == watch.Bookmark {
		p.nudging = false
		s.bookmarked()
		return p.bookmark(e, version, about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true")
	}
	event := stream.Event{Type: typeOf(e.Type), Object: s.object(e.Object, about)}
	if event.Object.In {
		s.count(event.Object.Slot, p.asked)
		if event.Type != stream.Deleted && !event.Object.Right {
			s.mislabelled(about)
		}
	}
	return p.decide(&event)
}

// ordered reports whether a version in an initial list can be ordered with the others. If not, the reflector falls back
// to an ordinary list and reports how that fails.
func (p *pump) ordered(version string) bool {
	s := p.source
	s.mu.Lock()
	err := s.order.check(s.inf.kind, version)
	s.mu.Unlock()
	if err != nil {
		p.disconnect()
		s.answeredList(time.Now(), err)
		status := apierrors.NewBadRequest(err.Error()).Status()
		p.send(watch.Event{Type: watch.Error, Object: &status})
	}
	return err == nil
}

// decide sends the stream's decision on an event, and moves the position past the event.
func (p *pump) decide(e *stream.Event) bool {
	s := p.source
	var v stream.Verdict
	s.mu.Lock()
	switch {
	case p.initial != nil:
		p.outs = p.initial.Event(s.core, p.outs[:0], e)
	case s.pump != p: // replaced: its events would move the position of its successor
		s.mu.Unlock()
		return true
	default:
		p.outs, v = s.core.Event(p.outs[:0], e)
	}
	if len(p.outs) == 0 && len(v.Missed) == 0 && p.initial == nil { // as with most events: those of others' objects
		s.advance(e.Object.Version)
		s.mu.Unlock()
		s.heed(v)
		return true
	}
	s.mu.Unlock()
	s.heed(v)
	if !p.emit(p.outs) {
		return false
	}
	if p.initial == nil { // the events of an initial list are in no order
		p.advance(e.Object.Version)
	}
	return true
}

func (p *pump) advance(version string) {
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
	if initial != nil && !p.addUnlisted(initial, version) {
		return false
	}
	if !p.send(e) {
		return false
	}
	if initial != nil {
		if initial.Set.Empty() {
			s.succeeds(RequestList)
		} else {
			s.listed()
		}
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

// addUnlisted sends the objects that exist although an initial list did not show them.
func (p *pump) addUnlisted(r *relist, version string) bool {
	s := p.source
	found, err := s.verify(p.ctx, s.unlisted(r.Set, "", r.Listed), r.Set, version)
	if err != nil {
		return false // the reflector tries again
	}
	s.mu.Lock()
	for _, o := range found {
		r.Adds(s.core, o)
	}
	s.mu.Unlock()
	for _, o := range found {
		if !p.send(watch.Event{Type: watch.Added, Object: o.Body.(runtime.Object).DeepCopyObject()}) {
			return false
		}
	}
	return true
}
