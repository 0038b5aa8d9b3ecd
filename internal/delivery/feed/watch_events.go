package feed

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
				p.source.inf.report(p.ctx, err)
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
		p.source.inf.share.Log.Error(err, "Unable to understand a watch event", "kind", p.source.inf.Kind.String(), "event",
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
	err := s.shows(p.initial, version, nil)
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
	v, passed := s.flow.decide(p, e)
	s.heed(v)
	if passed {
		return true
	}
	if !p.emit(p.outs) {
		return false
	}
	if p.initial == nil { // the events of an initial list are in no order
		s.passes(p, nil, e.Object.Version)
	}
	return true
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
	return s.passes(p, initial, version)
}

// addUnlisted sends the objects that exist although an initial list did not show them.
func (p *pump) addUnlisted(r *relist, version string) bool {
	s := p.source
	found, err := s.verify(p.ctx, s.unlisted(r.Set, "", r.Listed), r.Set, version)
	if err != nil {
		return false // the reflector tries again
	}
	s.adds(r.List, found)
	for _, o := range found {
		if !p.send(watch.Event{Type: watch.Added, Object: o.Body.(runtime.Object).DeepCopyObject()}) {
			return false
		}
	}
	return true
}

// emit sends what the stream decided. It returns false if the reflector has stopped reading.
func (p *pump) emit(outs []stream.Out) bool {
	for _, out := range outs {
		obj := out.Object.Body.(runtime.Object)
		if out.Kept || out.At != "" {
			obj = obj.DeepCopyObject() // a transform may change the object that is sent
		}
		if about, err := meta.Accessor(obj); err == nil && out.At != "" {
			about.SetResourceVersion(out.At)
		}
		sent := true
		switch out.Action {
		case stream.Put:
			sent = p.send(watch.Event{Type: watch.EventType(out.Type.String()), Object: obj})
		case stream.Remove:
			sent = p.send(watch.Event{Type: watch.Deleted, Object: obj})
		case stream.Leave:
			last := obj.DeepCopyObject() // each event is transformed separately
			sent = p.send(watch.Event{Type: watch.Modified, Object: obj}) &&
				p.send(watch.Event{Type: watch.Deleted, Object: last})
		case stream.ActionUnknown:
		}
		if !sent {
			return false
		}
	}
	return true
}

// heed acts on the rest of a verdict: on new doubts and missed deletions.
func (s *Source) heed(v stream.Verdict) {
	if v.Doubted {
		s.suspects.raise()
	}
	for _, o := range v.Missed {
		s.inf.missLate(o)
	}
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

// typeOf converts the type of a watch event about an object.
func typeOf(t watch.EventType) stream.Type {
	switch t {
	case watch.Added:
		return stream.Added
	case watch.Deleted:
		return stream.Deleted
	default:
		return stream.Modified
	}
}
