package feed

import (
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// cutMax is the longest wait after a watch that ended early but without an error.
	cutMax = time.Second
	// tooLargeMax is how often the API server may say that the position is in its future before the kind is listed again:
	// after a restore of etcd it would say so for ever.
	tooLargeMax = 6
	// fruitlessMax is how many watches in a row may end early, or get no answer from the API server itself, before the
	// kind is listed again.
	fruitlessMax = 5
	// steadyAfter is how long a watch must stay open to count as one that works.
	steadyAfter = time.Second
	// nudgeSeconds is the timeout of a watch that is opened for its bookmark: the API server sends one two seconds
	// before the end.
	nudgeSeconds = 3
	// nudgePeriod is the time within which no other bookmark is asked for: the first one has not been sent yet.
	nudgePeriod = 900 * time.Millisecond
)

// link is a pump's upstream watch, and when to open it again.
type link struct {
	options  metav1.ListOptions
	upstream watch.Interface
	opened   chan opened
	retry    <-chan time.Time
	steady   <-chan time.Time // the upstream watch works, though nothing may have come
	backoff  time.Duration
	tooLarge int
	// fruitless counts the watches that failed in a row. suspect is why the position may be useless; see again and
	// probeAnswered.
	fruitless int
	suspect   error
	probed    chan error
	since     time.Time // when upstream was opened
	nudge     bool
	nudging   bool // upstream was opened for a bookmark, which has not come yet
	// asked are the slots whose events upstream brings. wide: it was asked for everything because of Widen.
	asked slot.Set
	wide  bool
}

type opened struct {
	watch   watch.Interface
	err     error
	asked   slot.Set
	wide    bool
	nudging bool
}

func (l *link) disconnect() {
	l.steady = nil
	if l.upstream != nil {
		l.upstream.Stop()
		l.upstream = nil
	}
}

// reopen replaces the upstream watch by a new one, if it is open.
func (p *pump) reopen() {
	if p.upstream != nil && p.initial == nil {
		p.disconnect()
		p.open()
	}
}

// widen has the upstream bring the events of the slots, from the position on. Until it does, the position does not
// advance past an event of these slots.
func (p *pump) widen(set slot.Set) {
	if set = set.Minus(p.asked); !set.Empty() || p.source.isWide() && !p.wide {
		p.reopen()
	}
}

// open opens the upstream watch at the position, in the background. It asks for the slots wanted and for those that the
// stream still carries: they may be wanted again before the driver has seen that they were not.
func (p *pump) open() {
	o := sharding.Request{ListOptions: p.options}
	o.ResourceVersion = p.source.at()
	o.AllowWatchBookmarks = true
	nudging := p.nudge
	if p.nudge {
		seconds := int64(nudgeSeconds)
		o.TimeoutSeconds = &seconds
		p.nudge = false
	}
	set, _ := p.source.needs()
	wide := p.source.isWide() // before Narrow: if that turns wide in between, the watch is opened once more
	asked := p.source.scope.Narrow(&o, set.Union(p.source.inf.share.Held()))
	go func() {
		w, err := p.source.upstream.watch(p.ctx, o)
		select {
		case p.opened <- opened{w, err, asked, wide, nudging}:
		case <-p.ctx.Done():
			if w != nil {
				w.Stop()
			}
		}
	}()
}

func (p *pump) connected(o opened) bool {
	absent := p.source.Answered(o.err)
	switch {
	case o.err == nil:
	case absent:
		p.source.inf.report(p.ctx, o.err)
		p.source.failing(RequestWatch, time.Now(), o.err, true) // answered has logged it
		p.later()
		return true
	default:
		if !ordinary(o.err) {
			p.source.inf.report(p.ctx, o.err)
		}
		return p.failed(o.err)
	}
	p.upstream, p.asked, p.wide, p.nudging = o.watch, o.asked, o.wide, o.nudging
	p.since, p.steady = time.Now(), time.After(steadyAfter)
	needed, stale := p.source.needs()
	if stale {
		return p.gone(apierrors.NewResourceExpired("the kind was not served for some time: its objects have to be listed " +
			"again"))
	}
	if p.nudge { // since it was being opened
		p.reopen()
	}
	p.widen(needed) // slots may have come while it was being opened
	return true
}

// disconnected handles the end of the upstream: an error that came as its last event, or none if more is false. It
// returns false if this watch has to end.
func (p *pump) disconnected(e watch.Event, more bool) bool {
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

// endNudging judges a watch that was opened for a bookmark and is about to end.
func (p *pump) endNudging() {
	if p.nudging && time.Since(p.since) > (nudgeSeconds-1)*time.Second {
		p.source.noBookmark()
	}
	p.nudging = false
}

// failed handles an error of the upstream. It returns false if this watch has to end.
//
//   - The position is unknown (410), or has been in the server's future too often: the kind is listed again.
//   - The API server is down or busy: the watch is opened again at the same position.
//   - No answer came, or one of something in front of the API server: the same, up to fruitlessMax times.
//   - Any other error, such as an event that cannot be decoded or a permission that was taken away: the watch may fail
//     at this position for ever, so the kind is listed again.
//
// In the last two cases a small list has to succeed before the large one; see probeAnswered. client-go's reflector does
// the same, except that it lists at once if no answer comes, and waits up to a minute after a list that failed.
func (p *pump) failed(err error) bool {
	p.disconnect()
	tooLarge := apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return p.gone(err)
	case tooLarge:
		p.tooLarge++
		if p.tooLarge >= tooLargeMax {
			return p.gone(apierrors.NewResourceExpired(err.Error()))
		}
	case ordinary(err):
	case unanswered(err):
		p.fruitlessly(err)
	default:
		p.suspect = err
	}
	p.source.failing(RequestWatch, time.Now(), err, ordinary(err) || tooLarge || unanswered(err))
	p.later()
	return true
}

// fruitlessly counts a watch that ended for a reason that says nothing about the position.
func (l *link) fruitlessly(err error) {
	if l.fruitless++; l.fruitless >= fruitlessMax {
		l.fruitless, l.suspect = 0, err
	}
}

func (p *pump) gone(err error) bool {
	p.source.inf.share.Log.V(1).Info("The position of the watch is unknown, listing again", "kind", p.source.inf.Kind,
		"error", err.Error())
	status := metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired,
		Message: err.Error()}
	p.send(watch.Event{Type: watch.Error, Object: &status})
	return false
}

// later opens the upstream watch again after the backoff. Half of the backoff is random.
func (l *link) later() {
	l.retry = time.After(l.backoff/2 + rand.N(l.backoff/2+1))
	l.backoff = min(2*l.backoff, lastBackoff)
}

// again opens the upstream watch again. If the position is suspect, it sends a small list first.
func (p *pump) again() {
	if p.suspect == nil {
		p.open()
		return
	}
	go func() {
		_, err := p.source.Present(p.ctx)
		select {
		case p.probed <- err:
		case <-p.ctx.Done():
		}
	}()
}

// probeAnswered handles the answer to the small list that precedes the list of everything. The stream goes on while the
// API server refuses lists: once client-go's reflector has begun to list, no job runs, and it waits up to a minute
// between its tries.
func (p *pump) probeAnswered(err error) bool {
	p.source.answeredAs(requestProbe, time.Now(), err)
	if err == nil {
		return p.gone(p.suspect)
	}
	p.suspect = nil // the watch may work again before lists do
	p.later()
	return true
}
