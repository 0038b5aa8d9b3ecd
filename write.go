package rota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// ErrDeadline is wrapped by the errors of writes that were not sent because this member could not renew its Lease in
// time: others may be about to take its slots.
var ErrDeadline = errors.New("the member's Lease was not renewed in time")

// unknownMargin is added to the timeout of a write whose outcome is unknown, for the transit and for clocks that run at
// different rates.
const unknownMargin = time.Second

// WrapConfig returns a copy of cfg whose clients write as a member must. Use it for every client with which reconcilers
// write, and for those of informers, whose requests show which kinds are watched. ctrlrt uses it for the manager's
// clients.
//
// A write with the context of a reconcile, or one derived from it, is refused once the reconcile has returned, its slot
// is lost, or the deadline of the member's Lease has passed. The error then wraps context.Canceled, ErrLost,
// ErrExpired or ErrDeadline. Until then a reconcile whose context has ended, by a timeout or because a member that
// leaves cuts it short, may write with context.WithoutCancel. A write carries a server-side timeout within that
// deadline, of at most Options.WriteTimeout. The client gives up with it as long as the write has not been sent, and
// then waits for the answer until that deadline. If the outcome is unknown, the write keeps its slot from moving on
// until it can no longer take effect (rules R2 and R6).
//
// A write with another context is treated the same if its object is in a slot that this member has, or still works in
// after it lost it. Otherwise it goes through, as a write of an unsharded controller. A write with another context to
// an object of a sharded kind, or to a child of one, is logged once per place in the program.
//
// Writes and deletions are noted from their answers, so that the slot's next owner waits until its informers show them
// (rule R8). Those in another cluster than the kind's informers read from are not: its config has another host and
// another certificate authority.
//
// The reads of sharded informers get the informers' selectors, even if a ListerWatcher replaced them. Other reads are
// left alone.
func (r *Rota) WrapConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	of := clusterOf(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return r.wrap(next, of) })
	return cfg
}

// WrapTransport is WrapConfig for programs that make their own http.Client. nil stands for http.DefaultTransport.
func (r *Rota) WrapTransport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return r.wrap(next, cluster{})
}

func (r *Rota) wrap(next http.RoundTripper, of cluster) http.RoundTripper {
	r.wrapped.Add(1)
	return &writer{rota: r, next: next, cluster: of}
}

type writer struct {
	rota    *Rota
	next    http.RoundTripper
	cluster cluster
}

// RoundTrip implements http.RoundTripper.
func (w *writer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = w.rota.counted(req)
	if !isWrite(req) {
		if whole, watched := w.rota.resources.saw(req, w.cluster); watched {
			w.rota.tellWhole(whole, w.cluster)
		}
		return w.next.RoundTrip(withSelectors(req))
	}
	by, inFlight := w.rota.admittedFrom(req.Context())
	note := w.rota.noting(req, !inFlight, w.cluster)
	var release func()
	if inFlight {
		// From here on the write itself counts as in flight. So if the reconcile ends now, the slot does not move before the
		// write.
		release = w.rota.gate.Hold(by.slot)
		if err := gate.Ended(by.ctx); err != nil {
			release()
			if errors.Is(err, context.Canceled) {
				err = fmt.Errorf("the reconcile that it belongs to has ended: %w", err)
			}
			return nil, fmt.Errorf("%s %s was not sent: %w", req.Method, req.URL.Path, err)
		}
	} else {
		var err error
		if release, err = w.rota.join(req, note); err != nil {
			return nil, err
		}
		if release == nil { // it changes nothing in this member's slots, as far as is known
			return w.sendAsIs(req, note)
		}
	}
	left := w.rota.untilDeadline()
	if left <= 0 {
		release()
		return nil, fmt.Errorf("%s %s was not sent: %w", req.Method, req.URL.Path, ErrDeadline)
	}
	if t, ok := targetOf(req); ok && !t.changes() {
		// It is for an application or a container, to which "timeout" may mean something, and which may take longer.
		release()
		return w.sendAsIs(req, note)
	}
	timeout := min(left, w.rota.writeTimeout())
	parent := req.Context()
	s := newSending(parent, timeout, min(left, w.rota.cfg.RenewDeadline))
	req = req.Clone(s.ctx)
	if old, err := time.ParseDuration(req.URL.Query().Get("timeout")); err != nil || old <= 0 || old > timeout {
		req.URL.RawQuery = withTimeout(req.URL.RawQuery, timeout)
	}
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		w.rota.metrics.answered(resp)
	}
	switch {
	case err != nil && neverSent(err):
		release()
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		note.answered(resp) // while the slot cannot move
		release()
	default:
		// It may have been sent, or sent again by the transport, a moment ago.
		note.lost()
		time.AfterFunc(time.Until(s.settled(time.Now())), release)
	}
	own, limited := parent.Deadline()
	late := err != nil && s.ctx.Err() != nil && parent.Err() == nil && !(limited && !time.Now().Before(own))
	if err != nil {
		if late {
			w.rota.timedOut(s.text(req))
			err = s.givenUp(req, err)
		}
		s.over()
		return nil, err
	}
	resp.Body = &cancelBody{resp.Body, s.over}
	if resp.StatusCode == http.StatusGatewayTimeout {
		text := lateText(req, timeout)
		w.rota.timedOut(text)
		return explained(resp, text), nil
	}
	return resp, nil
}

// withTimeout returns a query with that timeout. The rest stays as it is: to encode it anew would sort it, and leave
// out what does not parse.
func withTimeout(query string, timeout time.Duration) string {
	rest := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool {
		key, _, _ := strings.Cut(part, "=")
		return key == "" || key == "timeout"
	})
	// The server reads durations; it rounds nothing up, and takes 0 for its own default, a minute.
	ms := strconv.FormatInt(max(1, timeout.Milliseconds()), 10)
	return strings.Join(append(rest, "timeout="+ms+"ms"), "&")
}

// sendAsIs sends a request that changes nothing in this member's slots.
func (w *writer) sendAsIs(req *http.Request, note *noted) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		w.rota.metrics.answered(resp)
		note.answered(resp)
	}
	return resp, err
}

// join counts a write without a reconcile as in flight in the slots that it changes. release is nil if none of them is
// this member's.
func (r *Rota) join(req *http.Request, note *noted) (release func(), err error) {
	slots := note.slots()
	if note != nil && (note.owned || len(slots) > 0) && r.state.HasJoined() {
		r.strays.tell(r.log, req, note.target)
	}
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	for _, s := range slots {
		f, verdict := r.gate.Join(s)
		switch verdict {
		case gate.Admitted:
			releases = append(releases, f)
			continue
		case gate.Unknown:
			continue
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
		return nil, nil //nolint:nilnil // there is nothing to be released
	}
	return release, nil
}

// body is the rest of an answer's body.
type body struct {
	io.Reader
	io.Closer
}

// cancelBody ends a request's context when its answer has been read.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the transport below.
func (w *writer) WrappedRoundTripper() http.RoundTripper { return w.next }

func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	default:
		// Reviews are questions in the form of a create, and these groups have nothing else. Names of objects and namespaces
		// have no slashes.
		return !strings.Contains(req.URL.Path, "/apis/authorization.k8s.io/") &&
			!strings.Contains(req.URL.Path, "/apis/authentication.k8s.io/")
	}
}

// neverSent reports whether the request cannot have reached the server.
func neverSent(err error) bool {
	return strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "no such host")
}

// admittedKey is of the innermost admitted of a context, whichever rota's it is.
type admittedKey struct{}

// admittedByKey is of the admitted of one rota. In a program with several, a reconcile of one uses clients of the
// others.
type admittedByKey struct{ rota *Rota }

// admitted is the reconcile that a write belongs to.
type admitted struct {
	rota *Rota
	slot slot.Slot
	// ctx is the one that the gate gave.
	ctx context.Context //nolint:containedctx // the value of one that is derived from it
	// duty has what a run of a duty starts; nil: it is a reconcile of a sharded controller.
	duty *dutyTasks
	// controller and key say what is reconciled; nil: a test does, or the labeller.
	controller *Controller
	key        types.NamespacedName
	// uid is that of the object when it was admitted; "": it was gone.
	uid types.UID
}

// in returns a context of the reconcile.
func (a admitted) in(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, admittedByKey{a.rota}, a), admittedKey{}, a)
}

// withSlot adds the slot to the context that the gate gave.
func (r *Rota) withSlot(ctx context.Context, s slot.Slot) context.Context {
	return admitted{rota: r, slot: s, ctx: ctx}.in(ctx)
}

// admittedFrom returns the reconcile of this rota that a context belongs to. One of another rota does not count: its
// slots are others.
func (r *Rota) admittedFrom(ctx context.Context) (admitted, bool) {
	a, ok := ctx.Value(admittedByKey{r}).(admitted)
	return a, ok
}

// slotsFrom returns the slot of the reconcile of this rota that a context belongs to, or none.
func (r *Rota) slotsFrom(ctx context.Context) []slot.Slot {
	if a, ok := r.admittedFrom(ctx); ok {
		return []slot.Slot{a.slot}
	}
	return nil
}

// authorFrom returns the name of the sharded controller whose reconcile a context belongs to, or "".
func (r *Rota) authorFrom(ctx context.Context) string {
	if a, ok := r.admittedFrom(ctx); ok && a.controller != nil {
		return a.controller.name
	}
	return ""
}
