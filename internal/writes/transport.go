package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
)

// ErrDeadline is returned, wrapped, for a write that was not sent because this member could not renew its Lease in
// time.
var ErrDeadline = errors.New("the member's Lease was not renewed in time")

// writer is the transport of a client.
type writer struct {
	*Writes

	next    http.RoundTripper
	cluster cluster
}

// RoundTrip implements http.RoundTripper.
func (w *writer) RoundTrip(req *http.Request) (*http.Response, error) {
	by, inFlight := work.AdmittedBy(req.Context(), w.env.Gate)
	req = w.counted(req, by)
	if !isWrite(req) {
		if whole, watched := w.resources.saw(req, w.cluster); watched {
			w.reportWhole(whole, w.cluster)
		}
		res, err := w.next.RoundTrip(uncompressed(withSelectors(req)))
		sieve.Apply(req, res)
		return hasty(req, res), err
	}
	note := w.noting(req, by, !inFlight, w.cluster)
	var release func()
	if inFlight {
		// From here on the write counts as in flight. If the reconcile ends now, the slot does not move before the write has
		// ended.
		release = w.env.Gate.Hold(by.Slot)
		if err := gate.Ended(by.Context); err != nil {
			release()
			if errors.Is(err, context.Canceled) {
				err = fmt.Errorf("the reconcile that it belongs to has ended: %w", err)
			}
			return nil, fmt.Errorf("%s %s was not sent: %w", req.Method, req.URL.Path, err)
		}
	} else {
		var err error
		if release, err = w.join(req, note); err != nil {
			return nil, err
		}
		if release == nil { // as far as known, it changes no object of this member's slots
			if err := w.mayBeLost(req, note); err != nil {
				return nil, err
			}
			return w.sendAsIs(req, note)
		}
	}
	w.impersonated.note(w.env.Log, req)
	t, ok := w.cluster.target(req)
	if ok && !t.changes() && w.env.Left() > 0 {
		// The request goes to an application or a container, which may take longer, and may interpret the parameter timeout.
		release()
		return w.sendAsIs(req, note)
	}
	of := pace{req.Method, t.group(), t.sub}
	end := w.beginLong(req.Context(), of)
	return w.sendTimed(req, note, of, end != nil, func() {
		if end != nil {
			end()
		}
		release()
	})
}

// sendTimed sends a write that must end in time (rule R2), and calls release when the write can no longer take effect.
// A long write may take longer than WriteTimeout.
func (w *writer) sendTimed(req *http.Request, note *noted, of pace, long bool, release func()) (*http.Response, error) {
	parent := req.Context()
	left := w.env.Left()
	if left <= 0 {
		release()
		return nil, fmt.Errorf("%s %s was not sent: %w", req.Method, req.URL.Path, ErrDeadline)
	}
	s := newSending(parent, LimitsOf(&w.env.Config, left, long))
	timeout := s.Timeout
	req = req.Clone(s.ctx)
	if old, err := time.ParseDuration(req.URL.Query().Get("timeout")); err != nil || old <= 0 || old > timeout {
		req.URL.RawQuery = withTimeout(req.URL.RawQuery, timeout)
	}
	slow := time.AfterFunc(w.quickness(), func() { w.slow(of) })
	resp, err := w.next.RoundTrip(req)
	if slow.Stop() && err == nil && resp.StatusCode != http.StatusGatewayTimeout {
		w.paces.wasQuick(of, w.env.Now())
	}
	if err == nil {
		w.reportRefusal(resp)
	}
	outcome := Unknown
	switch {
	case err != nil && s.neverSent(err):
		outcome = NeverSent
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		outcome = Answered
	}
	End(outcome, s.settles(), Effects{
		Answered: func() { note.answered(resp) }, Lost: note.lost, Release: release,
		After: func(wait time.Duration, do func()) { time.AfterFunc(wait, do) },
	})
	own, limited := parent.Deadline()
	late := err != nil && s.ctx.Err() != nil && parent.Err() == nil && !(limited && !time.Now().Before(own))
	late = late || s.cutByServer(err)
	if err != nil {
		if late {
			w.timedOut(s.text(req))
			err = s.givenUp(req, err)
		}
		s.over()
		return nil, err
	}
	resp.Body = &cancelBody{resp.Body, s.over}
	if resp.StatusCode == http.StatusGatewayTimeout {
		text := s.notDone(req)
		w.timedOut(text)
		return explained(resp, text), nil
	}
	return resp, nil
}

// sendAsIs sends a request that changes no object of this member's slots.
func (w *writer) sendAsIs(req *http.Request, note *noted) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		w.reportRefusal(resp)
		note.answered(resp)
	}
	return resp, err
}

// join counts a write outside of reconciles as in flight in the slots that it changes. release is nil if this member
// has none of them.
func (w *Writes) join(req *http.Request, note *noted) (release func(), err error) {
	slots := note.slots()
	if note != nil && (note.owned || len(slots) > 0) && w.env.HasJoined() {
		w.strays.report(w.env.Log, req, note.target, note.child)
	}
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	for _, s := range slots {
		f, verdict := w.env.Gate.Join(s)
		switch verdict {
		case gate.Admitted:
			releases = append(releases, f)
			continue
		case gate.Unknown:
			if !w.env.Share.Holds(s) || w.env.Left() > 0 {
				continue
			}
			err = ErrDeadline // another member may have the slot by now
		case gate.Expired:
			err = ErrDeadline
		default:
			err = gate.ErrLost
		}
		release()
		return nil, fmt.Errorf("%s %s was not sent, for slot %v: %w (it was made with a context that is not that of a "+
			"reconcile)", req.Method, req.URL.Path, s, err)
	}
	if len(releases) == 0 {
		return nil, nil
	}
	return release, nil
}

// harmless are resources for reporting and leader election. Members write them even after they have lost slots.
var harmless = []schema.GroupResource{
	{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Group: "coordination.k8s.io", Resource: "leases"},
}

// mayBeLost returns an error for a write outside of reconciles to an object of no slot of this member, while a
// reconcile runs that has lost its slot. The write may belong to that reconcile: the member no longer knows the owners
// of children in a lost slot, and objects of a kind that is not sharded are in no slot.
func (w *writer) mayBeLost(req *http.Request, note *noted) error {
	if !w.env.Gate.HasLost() {
		return nil
	}
	t, ok := w.cluster.target(req)
	sharded := note != nil && note.owned
	if !ok || !t.changes() || isDryRun(req) || !sharded && slices.Contains(harmless, t.group()) {
		return nil
	}
	err := gate.ErrLost
	if w.env.Left() <= 0 {
		err = ErrDeadline
	}
	return fmt.Errorf("%s %s was not sent, since it may belong to a reconcile that goes on without its slot: pass the "+
		"context of the reconcile to the client, or try again when that one has returned: %w", req.Method, req.URL.Path, err)
}

// body is the rest of an answer's body.
type body struct {
	io.Reader
	io.Closer
}

// cancelBody ends a request's context when the answer's body is closed.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// WrappedRoundTripper returns the transport below, for client-go.
func (w *writer) WrappedRoundTripper() http.RoundTripper { return w.next }

func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	default:
		// These groups only have reviews, which are created but not stored. Names of objects and namespaces have no slashes.
		return !strings.Contains(req.URL.Path, "/apis/authorization.k8s.io/") &&
			!strings.Contains(req.URL.Path, "/apis/authentication.k8s.io/")
	}
}
