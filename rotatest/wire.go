package rotatest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
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
	unplug  context.CancelFunc

	mu    sync.Mutex
	armed *killPoint // at which the member is killed; nil: it is not
}

func newWire(m *member) *wire {
	w := &wire{member: m}
	w.plugged, w.unplug = context.WithCancel(context.Background())
	return w
}

// own is for the requests of the rota itself. They neither lag nor count.
func (w *wire) own(next http.RoundTripper) http.RoundTripper { return cable.Plugged(w.plugged, next) }

// operators is for those of the operator.
func (w *wire) operators(next http.RoundTripper) http.RoundTripper {
	if w.member.run.fault.lags {
		next = cable.LateWatches(next, w.lag)
	}
	return (&recorder{member: w.member, record: w.member.run.record}).over(cable.Plugged(w.plugged, next))
}

const minLag, maxLag = 300 * time.Millisecond, 1500 * time.Millisecond

// lag is how much later this member hears of everything that a watch brings: of each resource by another time, so that
// it hears of a child long before or after its owner.
func (w *wire) lag(watch *http.Request) time.Duration {
	h := fnv.New64a()
	path := strings.Split(watch.URL.Path, "/")
	_, _ = h.Write([]byte(w.member.name + path[len(path)-1]))
	chosen := rand.New(rand.NewPCG(w.member.run.kit.seed, h.Sum64())) //nolint:gosec // no secret
	return minLag + time.Duration(chosen.Int64N(int64(maxLag-minLag)))
}

// arm has the member killed at a point. It returns false if another one is waited for.
func (w *wire) arm(p *killPoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed != nil {
		return false
	}
	w.armed = p
	return true
}

// disarm returns the point that was not reached.
func (w *wire) disarm() *killPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.armed
	w.armed = nil
	return p
}

// reaches reports whether this write is the one at which the member is killed.
func (w *wire) reaches(done write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed == nil || w.armed.of != done.what() {
		return false
	}
	w.armed.left--
	if w.armed.left > 0 {
		return false
	}
	w.armed.at = done
	return true
}

// recorder records the writes of a member, or with a nil member those of the test, and kills the member at its point.
type recorder struct {
	member *member
	record *record
	next   http.RoundTripper
}

// over returns the recorder over another transport. A config may be made into several.
func (r *recorder) over(next http.RoundTripper) http.RoundTripper {
	return &recorder{r.member, r.record, next}
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	about, ok := writes.AboutOf(req)
	if !ok || isNoise(about.Resource) {
		return r.next.RoundTrip(req)
	}
	done := write{verb: verbOf(req), About: about}
	if r.member != nil {
		done.by = r.member.name
		done.in, _ = req.Context().Value(reconcileKey{}).(object)
		r.member.run.reconciles.writes(r.member, done)
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		return resp, err
	}
	done.created = resp.StatusCode == http.StatusCreated && about.Subresource == ""
	if answer := writes.AnswerOf(resp); answer != nil && answer.Name != "" && answer.Kind != "Status" {
		if done.Name.Name == "" {
			done.Name.Name = answer.Name
		}
		done.version = answer.ResourceVersion
		if about.Subresource == "" {
			done.uid = answer.UID
		}
	}
	r.record.add(done)
	if r.member != nil && r.member.wire.reaches(done) {
		_ = resp.Body.Close()
		r.member.kill()
		return nil, fmt.Errorf("killed: %w", cable.ErrUnplugged)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find what is below.
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
