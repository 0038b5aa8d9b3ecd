package writes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Most writes take milliseconds, but an admission webhook may take ten seconds. A write that may take longer than
// WriteTimeout must be announced in the member's Lease before it is sent (rule R2). While the Lease announces long
// writes, a container that restarts waits longer. So paces records which writes are quick, and the Lease announces long
// writes only while the member sends writes that are not.

const (
	// quickFor is how long writes of a pace count as quick after a quick one.
	quickFor = 10 * time.Minute
	// slowFor is how long the Lease announces long writes after a slow one.
	slowFor = time.Minute
)

// pace groups writes that usually pass the same admission webhooks.
type pace struct {
	method   string
	resource schema.GroupResource
	sub      string
}

// paces remembers whether the last write of each pace was quick.
type paces struct {
	mu sync.Mutex
	// quick is the time of the last quick write. A pace whose last write was slow has no entry.
	quick map[pace]time.Duration
	// wanted is the time until which long writes were requested.
	wanted atomic.Int64
}

func (p *paces) isQuick(of pace, now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.quick[of]
	return ok && now-at < quickFor
}

func (p *paces) wasQuick(of pace, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quick == nil {
		p.quick = map[pace]time.Duration{}
	}
	p.quick[of] = now
}

func (p *paces) wasSlow(of pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.quick, of)
}

// wantLong requests long writes for some time. It returns false if there is no member.
func (w *Writes) wantLong(period time.Duration) bool {
	until := int64(w.env.Now() + period)
	was := w.paces.wanted.Load()
	if until-was < int64(period/4) {
		return true // requested a moment ago
	}
	if !w.env.WantLong(time.Duration(until)) {
		return false
	}
	w.paces.wanted.CompareAndSwap(was, until)
	return true
}

// quickness is the longest time that a quick write takes.
func (w *Writes) quickness() time.Duration { return w.env.Config.WriteTimeout / 8 }

// slow records a write that is not quick.
func (w *Writes) slow(of pace) {
	w.paces.wasSlow(of)
	w.wantLong(slowFor)
}

// beginLong begins a write that may take longer than WriteTimeout. It returns nil if the write must not. Unless writes
// of this pace are quick, it waits up to WriteTimeout for the Lease to announce long writes.
func (w *Writes) beginLong(ctx context.Context, of pace) (end func()) {
	end, allowed := w.env.Long.Begin()
	if end != nil || w.paces.isQuick(of, w.env.Now()) || !w.wantLong(w.env.Config.WriteTimeout) {
		return end
	}
	timer := time.NewTimer(w.env.Config.WriteTimeout)
	defer timer.Stop()
	select {
	case <-allowed:
	case <-ctx.Done():
	case <-timer.C:
	}
	end, _ = w.env.Long.Begin()
	return end
}
