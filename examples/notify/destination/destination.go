// Package destination sends notices: at a limited rate, with backoff, and obeying Retry-After.
package destination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// longestRetryAfter is the longest wait that a receiver can ask for.
const longestRetryAfter = time.Hour

// Destination is one receiver. Its methods may be called concurrently.
//
// After a failure it is closed for a while, for all notices: for as long as the receiver asked for, or else for a
// backoff. An object whose notice failed waits for a backoff of its own, too, so that one notice that always fails
// does not keep others back.
type Destination struct {
	config  config.Destination
	source  string
	client  *http.Client
	limiter *rate.Limiter
	metrics *Metrics
	now     func() time.Time

	mu       sync.Mutex
	closedAt time.Time // when the last failure that closed it came
	opens    time.Time // when it opens again
	failures int       // in a row
	turns    map[string]*turn
	accepted map[string]struct{}
}

// turn is when an object may send.
type turn struct {
	at       time.Time
	booked   bool // the limiter has counted it
	failures int
}

// New returns a destination.
func New(c config.Destination, source string, m *Metrics) *Destination {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = c.Burst
	d := &Destination{
		config: c, source: source, limiter: rate.NewLimiter(rate.Limit(c.Rate), c.Burst), metrics: m, now: time.Now,
		turns: map[string]*turn{}, accepted: map[string]struct{}{},
		client: &http.Client{Transport: transport, Timeout: c.Timeout,
			// A redirect turns a POST into a GET, and would send the notice to somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	m.announce(c.Name)
	return d
}

// Name is that of the configuration.
func (d *Destination) Name() string { return d.config.Name }

// Wants says whether the destination is told of an event.
func (d *Destination) Wants(t notice.Type) bool { return d.config.Wants(t) }

// Wait returns how long an object has to wait until it may send; 0 is now. A caller that gets 0 sends, or calls Wait
// again later.
func (d *Destination) Wait(object string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, t := d.now(), d.turns[object]
	if t == nil {
		t = &turn{}
	}
	if wait := max(d.opens.Sub(now), t.at.Sub(now)); wait > 0 {
		return wait
	}
	if t.booked {
		return 0
	}
	wait := d.limiter.ReserveN(now, 1).DelayFrom(now)
	t.at, t.booked = now.Add(wait), true
	d.turns[object] = t
	return wait
}

// Due says whether Wait could return 0 by now. It books nothing.
func (d *Destination) Due(object string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, t := d.now(), d.turns[object]
	return !now.Before(d.opens) && (t == nil || !now.Before(t.at))
}

// Accepted says whether the receiver took the notice from this process, as far as Settled was not called since.
func (d *Destination) Accepted(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.accepted[id]
	return ok
}

// Settled tells that it is remembered elsewhere that the receiver took the notice.
func (d *Destination) Settled(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.accepted, id)
}

// Message is what can be sent: a notice or a digest.
type Message interface {
	// Head returns an ID that is the same whenever the message is sent, and since when it waits.
	Head() (id string, at time.Time)
	// CloudEvent and Slack return the forms in which it is sent.
	CloudEvent(source string) ([]byte, error)
	Slack(source string) ([]byte, error)
}

var _, _ Message = notice.Notice{}, notice.Digest{}

// A RefusedError says that the receiver will never take this notice.
type RefusedError struct {
	Status string
}

func (e *RefusedError) Error() string { return "the receiver refused the notice: " + e.Status }

// Send sends a message about an object once. The error is a RefusedError if sending it again is of no use. After other
// errors, Wait says when to try again.
func (d *Destination) Send(ctx context.Context, object string, m Message) error {
	started := d.now()
	id, waits := m.Head()
	retryAfter, err := d.post(ctx, m)
	var refused *RefusedError
	code := "ok"
	switch {
	case err == nil:
	case errors.As(err, &refused):
		code = "refused"
	default:
		code = "failed"
	}
	d.metrics.requests.WithLabelValues(d.Name(), code).Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	if code != "failed" {
		if err == nil {
			d.accepted[id] = struct{}{}
			d.metrics.delay.WithLabelValues(d.Name()).Observe(d.now().Sub(waits).Seconds())
		}
		delete(d.turns, object)
		if !started.Before(d.closedAt) {
			d.failures, d.opens = 0, time.Time{}
		}
		return err
	}
	if ctx.Err() != nil {
		return err // the caller gave up, for instance because the object is another replica's now
	}
	t := d.turns[object]
	if t == nil {
		t = &turn{}
		d.turns[object] = t
	}
	now := d.now()
	t.at, t.booked = now.Add(d.backoff(t.failures)), false
	t.failures++
	if !started.Before(d.closedAt) { // otherwise it belongs to the failure that closed it
		d.closedAt, d.opens = now, now.Add(d.backoff(d.failures))
		d.failures++
	}
	if asked := now.Add(min(retryAfter, longestRetryAfter)); retryAfter > 0 && asked.After(d.opens) {
		d.opens = asked
	}
	return err
}

// backoff returns the wait after one more failure. Replicas should not all come back at the same time.
func (d *Destination) backoff(failures int) time.Duration {
	wait := d.config.Backoff.Max
	if failures < 30 {
		wait = min(wait, d.config.Backoff.Min<<failures)
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/5+1))
}

// post sends one request. It returns what the receiver asked for in Retry-After, or 0.
func (d *Destination) post(ctx context.Context, m Message) (retryAfter time.Duration, err error) {
	form, contentType := m.CloudEvent, notice.ContentType
	if d.config.Slack != nil {
		form, contentType = m.Slack, "application/json"
	}
	body, err := form(d.source)
	if err != nil {
		return 0, &RefusedError{err.Error()}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.config.URL(), bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the url is malformed")
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", "rota-example-notify")
	if d.config.Webhook != nil {
		at := d.now()
		id, _ := m.Head()
		request.Header.Set(notice.IDHeader, id)
		request.Header.Set(notice.TimestampHeader, strconv.FormatInt(at.Unix(), 10))
		if secret := d.config.Webhook.Secret; len(secret) > 0 {
			request.Header.Set(notice.SignatureHeader, notice.Sign(secret, id, at, body))
		}
	}
	response, err := d.client.Do(request)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which may be a secret
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 200))
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // so that the connection can be used again
	return d.judge(response, text)
}

// judge tells answers apart: taken, refused for good, and everything else, which is tried again.
func (d *Destination) judge(response *http.Response, text []byte) (time.Duration, error) {
	status := fmt.Sprintf("%s: %q", response.Status, bytes.TrimSpace(text))
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge,
		code == http.StatusUnsupportedMediaType, code == http.StatusUnprocessableEntity:
		return 0, &RefusedError{status}
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		wait := retryAfter(response.Header.Get("Retry-After"), d.now())
		return wait, fmt.Errorf("the receiver cannot take it now: %s", status)
	}
	// The URL or the rights are wrong. That can be repaired, and then nothing should be lost.
	return 0, fmt.Errorf("the receiver takes nothing: %s: correct its url or its rights", status)
}

// retryAfter reads the header: seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

// All returns the destinations of a configuration, and registers their metrics.
func All(c *config.Config, to prometheus.Registerer) []*Destination {
	m := NewMetrics(to)
	var out []*Destination
	for _, d := range c.Destinations {
		out = append(out, New(d, c.Source, m))
	}
	return out
}
