package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Limits of the delay between attempts.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// backoff delays the next attempt after failures.
type backoff struct{ delay time.Duration }

// next returns the wait after an error. random is in [0,1).
func (b *backoff) next(err error, random float64) time.Duration {
	b.delay = min(max(2*b.delay, firstDelay), maxDelay)
	var p *Problem
	if errors.As(err, &p) && p.RetryAfter > 0 {
		return p.RetryAfter + time.Duration(random*float64(p.RetryAfter)/4) // never earlier
	}
	return b.delay/2 + time.Duration(random*float64(b.delay)/2)
}

// wait waits for the next attempt. It returns false if ctx ended.
func (b *backoff) wait(ctx context.Context, err error) bool {
	return sleep(ctx, b.next(err, rand.Float64())) // jitter is not a secret
}

// sleep returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
