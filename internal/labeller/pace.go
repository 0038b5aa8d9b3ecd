package labeller

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// Defaults of Options: patches and scanned objects per second, and patches in flight.
const (
	defaultQPS         = 200
	defaultConcurrency = 16
	defaultScanRate    = 5000
)

// defaultBurst returns half of what may be sent in a second.
func defaultBurst(qps float32) int { return max(1, int(qps/2)) }

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

// backoff returns how long to wait after the given number of failures in a row, at least 1. It doubles each time, with
// jitter of one half.
func backoff(failures int, last time.Duration) time.Duration {
	d := min(firstBackoff<<min(failures-1, 20), last)
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d. It returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// pace limits when patches may be sent: within the rate, and not during a pause that the server asked for or that
// failures suggest. All patches of a labeller share it.
type pace struct {
	tokens flowcontrol.RateLimiter

	mu       sync.Mutex
	until    time.Time
	failures int // in a row
}

func newPace(qps float32, burst int) *pace {
	return &pace{tokens: flowcontrol.NewTokenBucketRateLimiter(qps, burst)}
}

// pause delays all patches for at least the given time, after the failure of a patch that was sent at the given time.
// Patches that were in flight together fail together; only the first of them makes the pauses longer.
func (p *pace) pause(sent time.Time, atLeast time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !sent.Before(p.until) || p.failures == 0 {
		p.failures++
		p.until = now.Add(backoff(p.failures, lastBackoff))
	}
	// Add a little, so that clients with the same delay do not all come at the same time.
	if asked := now.Add(atLeast + rand.N(atLeast/8+1)); asked.After(p.until) && atLeast > 0 {
		p.until = asked
	}
}

// resume records that a patch sent at the given time succeeded.
func (p *pace) resume(sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !sent.Before(p.until) {
		p.failures = 0
	}
}

// left returns the rest of the pause.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.until)
}

// wait waits for the end of the pause and until the rate allows a patch. It returns false if ctx ended.
func (p *pace) wait(ctx context.Context) bool {
	for {
		for d := p.left(); d > 0; d = p.left() {
			if !sleep(ctx, d) {
				return false
			}
		}
		if p.tokens.Wait(ctx) != nil {
			return false
		}
		if p.left() <= 0 {
			return true
		}
	}
}
