package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Ending is a take and the result of the work on it.
type Ending struct {
	Take   *Take
	Result Result
}

// DoneAll ends several takes, like Done, in as few requests as the dispatchers allow. Each take may be listed only
// once. It returns an error for each take, in the same order, or nil if it was ended. The dispatchers must be as new as
// this client: older ones refuse the request with ErrInvalid.
func (c *Client) DoneAll(ctx context.Context, endings []Ending) []error {
	in := make([]wire.DoneRequest, len(endings))
	for i, e := range endings {
		in[i] = doneRequest(e.Take, e.Result)
	}
	return callAll(ctx, c, wire.PathDone, in, func(_ int, _ time.Duration, a wire.DoneAnswer) *wire.Problem {
		return a.Problem
	})
}

// ExtendAll extends several takes, like Extend, in as few requests as the dispatchers allow. Each take may be listed
// only once. It returns an error for each take, in the same order, or nil if it was extended. The dispatchers must be
// as new as this client: older ones refuse the request with ErrInvalid.
func (c *Client) ExtendAll(ctx context.Context, takes []*Take, length time.Duration) []error {
	in := make([]wire.ExtendRequest, len(takes))
	for i, t := range takes {
		in[i] = wire.ExtendRequest{Token: t.token, LengthSeconds: length.Seconds()}
	}
	return callAll(ctx, c, wire.PathExtend, in, func(i int, sent time.Duration, a wire.ExtendAnswer) *wire.Problem {
		if a.Problem == nil {
			takes[i].extended(sent, a.ExpiresInSeconds, a.Draining)
		}
		return a.Problem
	})
}

// list is a message about several takes.
type list[T any] struct {
	Takes []T `json:"takes"`
}

// callAll sends requests about several takes, and retries those with a temporary problem until ctx ends. It calls
// answered with each answer, which returns its problem. The errors are in the order of the takes.
func callAll[In, Out any](
	ctx context.Context, c *Client, path string, in []In,
	answered func(i int, sent time.Duration, a Out) *wire.Problem,
) []error {
	errs := make([]error, len(in))
	left := make([]int, len(in))
	for i := range left {
		left[i] = i
	}
	for b := (&backoff{}); ; {
		var again []int
		for len(left) > 0 {
			n := batch(in, left)
			which := left[:n]
			left = left[n:]
			sent, out, err := callOnce[In, Out](ctx, c, path, in, which)
			for k, i := range which {
				if errs[i] = err; err != nil {
					continue
				}
				if p := answered(i, sent, out[k]); p != nil {
					problem := &Problem{Problem: *p}
					if errs[i] = fmt.Errorf("%s: %w", path, problem); problem.temporary() {
						again = append(again, i)
					}
				}
			}
		}
		if len(again) == 0 || !b.wait(ctx, errs[again[0]]) {
			return errs
		}
		left = again
	}
}

// callOnce sends a request about some of the takes. It returns an answer for each of them, or an error.
func callOnce[In, Out any](ctx context.Context, c *Client, path string, in []In, which []int) (
	time.Duration, []Out, error,
) {
	var request list[In]
	for _, i := range which {
		request.Takes = append(request.Takes, in[i])
	}
	var answer list[Out]
	sent, err := c.call(ctx, path, requestTimeout, request, &answer)
	if err == nil && len(answer.Takes) != len(which) {
		err = fmt.Errorf("%s: %d answers for %d takes", path, len(answer.Takes), len(which))
	}
	return sent, answer.Takes, err
}

// batch returns how many of the remaining takes fit into a request, at least 1.
func batch[In any](in []In, left []int) (n int) {
	size := len(`{"takes":[]}`)
	for ; n < min(len(left), wire.MaxTakes); n++ {
		text, _ := json.Marshal(in[left[n]]) // the request reports the error
		if size += len(text) + 1; size > wire.MaxBody && n > 0 {
			break
		}
	}
	return n
}
