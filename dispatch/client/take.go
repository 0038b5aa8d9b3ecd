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

// Take is a key that this client has until it says how the work ended, or the take expires.
type Take struct {
	// Kind is "KIND.GROUP", or "KIND" in the core group.
	Kind            string
	Namespace, Name string
	// UID and ResourceVersion are those of the object when the dispatcher last heard of it. They may be empty.
	UID, ResourceVersion string
	// Gone says that the object was deleted.
	Gone bool
	// Class is "changed" if the object changed, "recent" or "opened" if its slot came to the dispatcher, or it is time to
	// look at it again.
	Class string
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since one succeeded.
	Attempt int
	// Slot and Epoch are the slot of the key, and its epoch, which rises each time the slot goes to another dispatcher.
	Slot  int
	Epoch uint64
	// Waited is how long the key had been ready.
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

// Remaining is how long the take lasts still; at most 0: it has expired. It may rise while Run extends the take.
func (t *Take) Remaining() time.Duration {
	if t.client == nil {
		return 0 // it is of a test
	}
	return time.Duration(t.deadline.Load()) - t.client.clock.Late()
}

// Draining says that the key's slot is about to go to another dispatcher: finish soon. It is known once the take was
// extended.
func (t *Take) Draining() bool { return t.draining.Load() }

// seconds reads a time. What cannot be a time is as long as there is.
func seconds(s float64) time.Duration {
	d := s * float64(time.Second)
	switch {
	case math.IsNaN(d) || d >= math.MaxInt64/2: // so that a time can be added
		return math.MaxInt64 / 2
	case d <= math.MinInt64/2:
		return math.MinInt64 / 2
	}
	return time.Duration(d)
}

// expires sets the deadline of a take by an answer to a request that was sent then.
func (t *Take) expires(sent time.Duration, inSeconds float64) {
	t.deadline.Store(int64(sent + seconds(inSeconds)))
}

// newTake reads a take.
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

// Take asks for keys. There are none if there were none in time.
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

// maxAfter bounds Result.After: dispatchers refuse more than about a year.
const maxAfter = 365 * 24 * time.Hour

// Result is how the work on a key ended. The zero value is success.
type Result struct {
	// Retry says that it failed: the key comes again after a delay that grows with each failure.
	Retry bool
	// Reason is why it failed, in a line: dispatchers list it with the keys that fail. They keep wire.MaxReason bytes.
	Reason string
	// After has the key come again after that time, a year at most; 0: when the object changes. With Retry it is the least
	// delay.
	After time.Duration
}

// Done ends a take. It may be sent again for two minutes if its answer was lost. ErrEnded: the take had ended before.
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

// Extend has a take last longer: length from now on, or what the dispatcher allows. With length 0 the dispatcher
// decides. See Take.Remaining and Take.Draining.
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

// Release ends a take as if it had not been: another worker gets the key.
func (c *Client) Release(ctx context.Context, t *Take) error {
	_, err := c.call(ctx, wire.PathRelease, requestTimeout, wire.ReleaseRequest{Token: t.token}, nil)
	return err
}
