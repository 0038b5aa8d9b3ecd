package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Take is a key that this client holds until it reports the result, or the take expires.
type Take struct {
	// Kind is "KIND.GROUP", or "KIND" in the core group.
	Kind            string
	Namespace, Name string
	// UID and ResourceVersion are the object's when the dispatcher last saw it. They may be empty.
	UID, ResourceVersion string
	// Gone is true if the object was deleted.
	Gone bool
	// Class is "changed" if the object changed, and "recent" or "opened" if its slot moved to the dispatcher, or a resync
	// is due.
	Class string
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since the last success.
	Attempt int
	// Slot is the key's slot. Epoch is the slot's epoch, which rises each time the slot moves to another dispatcher.
	Slot  int
	Epoch uint64
	// Waited is how long the key was ready before the take.
	Waited time.Duration

	token    string // a secret
	client   *Client
	deadline atomic.Int64 // by client.clock
	draining atomic.Bool
}

// String returns "KIND namespace/name".
func (t *Take) String() string {
	if t.Namespace == "" {
		return t.Kind + " " + t.Name
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// Remaining returns how long the take will last. It is 0 or negative if the take has expired, and may rise while Run
// extends the take.
func (t *Take) Remaining() time.Duration {
	if t.client == nil {
		return 0 // made by a test
	}
	return time.Duration(t.deadline.Load()) - t.client.clock.Late()
}

// Draining reports whether the key's slot is about to move to another dispatcher, so that the handler should finish
// soon. It is updated when the take is extended.
func (t *Take) Draining() bool { return t.draining.Load() }

// seconds converts a number of seconds. Numbers that are out of range become the longest duration.
func seconds(s float64) time.Duration {
	d := s * float64(time.Second)
	switch {
	case math.IsNaN(d) || d >= math.MaxInt64/2: // leaves room to add a time
		return math.MaxInt64 / 2
	case d <= math.MinInt64/2:
		return math.MinInt64 / 2
	}
	return time.Duration(d)
}

// expires sets the take's deadline from an answer. sent is when the request was sent.
func (t *Take) expires(sent time.Duration, inSeconds float64) {
	t.deadline.Store(int64(sent + seconds(inSeconds)))
}

// newTake converts a take.
func (c *Client) newTake(sent time.Duration, w *wire.Take) (*Take, error) {
	if w.Token == "" || w.Kind == "" || w.Name == "" {
		return nil, errors.New("a take without token, kind or name")
	}
	t := &Take{
		Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID, ResourceVersion: w.ResourceVersion,
		Gone: w.Gone, Class: w.Class, Attempt: w.Attempt, Slot: w.Slot, Epoch: w.Epoch, Waited: seconds(w.WaitedSeconds),
		token: w.Token, client: c,
	}
	t.expires(sent, w.ExpiresInSeconds)
	return t, nil
}

// Take asks for keys. It returns none if none were ready in time.
func (c *Client) Take(ctx context.Context, req TakeRequest) ([]*Take, error) {
	var in wire.TakeResponse
	sent, err := c.call(ctx, wire.PathTake, seconds(req.WaitSeconds)+requestTimeout, req, &in)
	if err != nil {
		return nil, err
	}
	takes := make([]*Take, 0, len(in.Takes))
	for i := range in.Takes {
		t, err := c.newTake(sent, &in.Takes[i])
		if err != nil {
			return takes, fmt.Errorf("%s: %w", wire.PathTake, err)
		}
		takes = append(takes, t)
	}
	return takes, nil
}

// maxAfter bounds Result.After, since dispatchers refuse more than about a year.
const maxAfter = 365 * 24 * time.Hour

// Result is the result of the work on a key. The zero value is success.
type Result struct {
	// Retry means that the work failed: the key comes again after a delay that grows with each failure.
	Retry bool
	// Reason is why the work failed, in one line. Dispatchers show it with failing keys, and keep wire.MaxReason bytes.
	Reason string
	// After makes the key come again after this time, at most a year, even without a change. With Retry it is the shortest
	// delay.
	After time.Duration
}

// Done ends a take. If the answer was lost, it may be sent again for two minutes. The error is ErrEnded if the take had
// ended before.
func (c *Client) Done(ctx context.Context, t *Take, r Result) error {
	_, err := c.call(ctx, wire.PathDone, requestTimeout, doneRequest(t, r), nil)
	return err
}

func doneRequest(t *Take, r Result) wire.DoneRequest {
	after := min(max(r.After, 0), maxAfter)
	req := wire.DoneRequest{Token: t.token, Result: wire.ResultOK, AfterSeconds: after.Seconds()}
	if r.Retry {
		req.Result, req.Reason = wire.ResultRetry, r.Reason[:min(len(r.Reason), wire.MaxReason)]
	}
	return req
}

// Extend extends a take to length from now, or to what the dispatcher allows. With length 0 the dispatcher decides. See
// Take.Remaining and Take.Draining.
func (c *Client) Extend(ctx context.Context, t *Take, length time.Duration) error {
	var out wire.ExtendResponse
	req := wire.ExtendRequest{Token: t.token, LengthSeconds: length.Seconds()}
	sent, err := c.call(ctx, wire.PathExtend, requestTimeout, req, &out)
	if err != nil {
		return err
	}
	t.extended(sent, out.ExpiresInSeconds, out.Draining)
	return nil
}

func (t *Take) extended(sent time.Duration, expiresInSeconds float64, draining bool) {
	t.expires(sent, expiresInSeconds)
	t.draining.Store(draining)
}

// Release gives a take back as if it had not happened: another worker gets the key.
func (c *Client) Release(ctx context.Context, t *Take) error {
	_, err := c.call(ctx, wire.PathRelease, requestTimeout, wire.ReleaseRequest{Token: t.token}, nil)
	return err
}
