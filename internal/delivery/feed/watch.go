package feed

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/stream"
)

// pump is a watch that the reflector reads. Only its goroutine sends events to the store: events of the upstream watch
// and of jobs.
type pump struct {
	source *Source
	ctx    context.Context //nolint:containedctx // the life of the watch, which Stop ends
	cancel context.CancelFunc
	// out has no buffer: what was sent has been taken.
	out chan watch.Event

	link
	// initial is the list that WatchList is sending, until the bookmark that ends it.
	initial *relist
	// outs is a reused buffer for the results of an event.
	outs []stream.Out
	// over is true once the pump no longer runs jobs. flow.mu guards it.
	over bool
}

func newPump(ctx context.Context, s *Source, o metav1.ListOptions) *pump {
	p := &pump{source: s, out: make(chan watch.Event), link: link{
		options: o, opened: make(chan opened), probed: make(chan error), backoff: firstBackoff,
	}}
	p.options.SendInitialEvents, p.options.ResourceVersionMatch = nil, ""
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// ResultChan implements watch.Interface.
func (p *pump) ResultChan() <-chan watch.Event { return p.out }

// Stop implements watch.Interface.
func (p *pump) Stop() { p.cancel() }

// run sends events until the reflector stops the watch or has to list again. first is an upstream watch that is already
// open; initial is the list that it begins with.
func (p *pump) run(first watch.Interface, initial *relist) {
	p.upstream, p.initial, p.since = first, initial, time.Now()
	defer p.end()
	if initial != nil && initial.complete && !p.bookmark(p.source.inf.mark.initialEnd(initial.version), initial.version,
		true) {
		return
	}
	if first == nil {
		p.open()
	}
	for {
		var events <-chan watch.Event
		if p.upstream != nil {
			events = p.upstream.ResultChan()
		}
		jobs := p.source.jobs
		if p.initial != nil {
			jobs = nil
		}
		ok := true
		select {
		case <-p.ctx.Done():
			return
		case e, more := <-events:
			ok = p.received(e, more)
		case o := <-p.opened:
			ok = p.connected(o)
		case <-p.retry:
			p.retry = nil
			p.again()
		case err := <-p.probed:
			ok = p.probeAnswered(err)
		case <-p.steady:
			p.works()
		case j := <-jobs:
			ok = j.run(p)
			j.done <- ok
		case <-p.source.nudges:
			p.endNudging()
			p.nudge = true
			p.reopen()
		}
		if !ok {
			return
		}
	}
}

func (p *pump) end() {
	p.abort()
	p.disconnect()
	close(p.out)
}

// abort has the pump run no more jobs.
func (p *pump) abort() {
	p.cancel()
	p.source.ends(p)
}

// received handles an event of the upstream, or its end. It returns false if this watch has to end.
func (p *pump) received(e watch.Event, more bool) bool {
	if !more || e.Type == watch.Error {
		return p.disconnected(e, more)
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

// works notes that the upstream watch has brought something, or stays open.
func (p *pump) works() {
	p.backoff, p.tooLarge, p.fruitless, p.suspect = firstBackoff, 0, 0, nil
	if p.steady != nil {
		p.steady = nil
		p.source.succeeds(RequestWatch)
		p.source.succeeds(requestProbe) // it is not needed any more
	}
}

// ordered reports whether a version in an initial list can be ordered with the others. If not, the reflector falls back
// to an ordinary list and reports how that fails.
func (p *pump) ordered(version string) bool {
	s := p.source
	err := s.shows(p.initial, version, nil, nil)
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

// send hands an event to the reflector. It returns false if the reflector has stopped reading.
func (p *pump) send(e watch.Event) bool {
	select {
	case p.out <- e:
	case <-p.ctx.Done():
		return false
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

// expire makes the reflector list again.
func (p *pump) expire() {
	defer close(p.out)
	status := apierrors.NewResourceExpired("the objects of this member's share have to be listed again").Status()
	p.send(watch.Event{Type: watch.Error, Object: &status})
}
