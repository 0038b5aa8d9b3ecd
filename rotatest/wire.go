package rotatest

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/cable"
	"github.com/rota-dev/rota/internal/writes"
)

// wire is the connection of a member to the API server.
type wire struct {
	member  *member
	plugged context.Context //nolint:containedctx // the state of the cable
	cut     context.CancelFunc

	mu       sync.Mutex // held by unplug, so that no write begins meanwhile
	underway sync.WaitGroup
}

func newWire(m *member) *wire {
	w := &wire{member: m}
	w.plugged, w.cut = context.WithCancel(context.Background())
	return w
}

// unplug blocks all requests except writes that were already sent, which the API server may still accept.
func (w *wire) unplug() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut()
}

// begins reports whether a write may begin. If so, underway counts it.
func (w *wire) begins() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plugged.Err() != nil {
		return false
	}
	w.underway.Add(1)
	return true
}

// own wraps the transport for the rota's own requests. They neither lag nor count.
func (w *wire) own(next http.RoundTripper) http.RoundTripper { return cable.Plugged(w.plugged, next) }

// operators wraps the transport for the operator's requests.
func (w *wire) operators(next http.RoundTripper) http.RoundTripper {
	if w.member.run.fault.lags {
		next = cable.LateWatches(next, w.lag)
	}
	return (&recorder{member: w.member, record: w.member.run.record, guard: w.member.run.guard}).over(next)
}

// answerTime is how long the answer to a write may take.
const answerTime = 30 * time.Second

// send sends a write. Once the write has a connection, it continues even if the member is killed or gives it up: all
// writes that the API server accepts must be recorded. note is called with the answer even if the caller no longer
// waits for it, or with nil if the answer was lost.
func (w *wire) send(req *http.Request, next http.RoundTripper, note func(*http.Response)) (*http.Response, error) {
	if !w.begins() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, cable.ErrUnplugged
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), answerTime)
	var mu sync.Mutex
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		sent = true
	}})
	type answer struct {
		resp *http.Response
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		defer w.underway.Done()
		defer cancel()
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err == nil {
			err = readWhole(resp)
		}
		mu.Lock()
		lost := err != nil && sent
		mu.Unlock()
		switch {
		case err == nil:
			note(resp)
		case lost:
			note(nil)
		}
		answered <- answer{resp, err}
	}()
	var err error
	select {
	case a := <-answered:
		if !w.member.isKilled() {
			return a.resp, a.err
		}
		err = cable.ErrUnplugged
	case <-w.plugged.Done():
		err = cable.ErrUnplugged
	case <-req.Context().Done():
		err = req.Context().Err()
	}
	mu.Lock()
	defer mu.Unlock()
	if !sent {
		cancel()
	}
	return nil, err
}

// readWhole reads the body of an answer and puts it back.
func readWhole(resp *http.Response) error {
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return err
}

const minLag, maxLag = 300 * time.Millisecond, 1500 * time.Millisecond

// lag returns how much the events of a watch are delayed for this member. It differs by resource, so that the member
// sees a child long before or after its owner.
func (w *wire) lag(watch *http.Request) time.Duration {
	h := fnv.New64a()
	path := strings.Split(watch.URL.Path, "/")
	_, _ = fmt.Fprintf(h, "%d %s", w.member.number, path[len(path)-1])
	chosen := rand.New(rand.NewPCG(w.member.run.kit.seed, h.Sum64())) //nolint:gosec // no secret
	return minLag + time.Duration(chosen.Int64N(int64(maxLag-minLag)))
}

// recorder records the writes of a member, or of the test if member is nil, and kills the member at its kill point.
type recorder struct {
	member *member
	record *record
	guard  *guard
	// next handles all requests except the writes of members, which use direct.
	next, direct http.RoundTripper
}

// over returns the recorder on top of another transport. A config may be used for several transports.
func (r *recorder) over(next http.RoundTripper) http.RoundTripper {
	if r.member == nil {
		return &recorder{nil, r.record, r.guard, next, next}
	}
	return &recorder{r.member, r.record, r.guard, cable.Plugged(r.member.wire.plugged, next), next}
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	about, ok := writes.AboutOf(req)
	if !ok {
		return r.next.RoundTrip(req)
	}
	done := write{verb: verbOf(req), About: about}
	if r.member != nil {
		done.by = r.member.name
		done.in, _ = req.Context().Value(reconcileKey{}).(object)
	}
	if err := r.guard.check(req, done); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	if r.member == nil {
		resp, err := r.next.RoundTrip(req)
		if err == nil {
			r.note(done, resp)
		}
		return resp, err
	}
	if isNoise(about.Resource) {
		return r.send(req, done)
	}
	run := r.member.run
	run.reconciles.writes(r.member, done)
	if !run.fault.timesOut || !run.killer.kills(nil, done) {
		return r.send(req, done)
	}
	did := "done"
	if run.killer.total()%2 == 1 {
		if resp, err := r.send(req, done); err != nil || resp.StatusCode >= http.StatusMultipleChoices {
			return resp, err
		}
	} else {
		did = "not done"
		if req.Body != nil {
			_ = req.Body.Close()
		}
	}
	run.notef("it was %s, and answered by a timeout: %s", did, done)
	return timeout(req), nil
}

// send sends a member's write and records it.
func (r *recorder) send(req *http.Request, done write) (*http.Response, error) {
	return r.member.wire.send(req, r.direct, func(resp *http.Response) {
		if resp == nil {
			r.lost(done, req)
		} else {
			r.note(done, resp)
		}
	})
}

// timeout returns the answer of an API server that took too long.
func timeout(req *http.Request) *http.Response {
	const status = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Timeout", "code": 504,
		"message": "rotatest: a timeout"}`
	return &http.Response{
		StatusCode: http.StatusGatewayTimeout, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
	}
}

// lost records a write whose answer was lost.
func (r *recorder) lost(done write, req *http.Request) {
	done.unanswered = true
	if done.Name.Name == "" && req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			if asked := writes.AnswerOf(&http.Response{Header: req.Header, Body: body}); asked != nil {
				done.Name.Name, done.generateName = asked.Name, asked.GenerateName
			}
		}
	}
	r.record.add(done)
}

// note records a write and its answer.
func (r *recorder) note(done write, resp *http.Response) {
	if resp.StatusCode >= http.StatusMultipleChoices {
		return
	}
	done.created = resp.StatusCode == http.StatusCreated && done.Subresource == ""
	if answer := writes.AnswerOf(resp); answer != nil && answer.Name != "" && answer.Kind != "Status" {
		if done.Name.Name == "" {
			done.Name.Name = answer.Name
		}
		done.version, done.generateName = answer.ResourceVersion, answer.GenerateName
		if done.Subresource == "" {
			done.uid = answer.UID
		}
	}
	r.record.add(done)
	if m := r.member; m != nil && !isNoise(done.Resource) && !m.run.fault.timesOut && m.run.killer.kills(m, done) {
		m.die()
	}
}

// WrappedRoundTripper gives client-go access to the wrapped RoundTripper.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

func verbOf(req *http.Request) string {
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	}
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
		return "apply"
	}
	return "patch"
}
