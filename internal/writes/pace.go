package writes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Most writes take milliseconds, but an admission webhook may take ten seconds. A write that may take longer than
// WriteTimeout has to be announced in the member's Lease before it is sent (rule R2), and while that stands there, a
// container that restarts waits longer. So paces knows which writes are quick, and the Lease announces long writes only
// while others are sent.

const (
	// quickFor is how long a write counts as quick after one like it was.
	quickFor = 10 * time.Minute
	// slowFor is for how long the Lease announces long writes after a slow one.
	slowFor = time.Minute
)

// pace is what writes have in common that pass the same admission webhooks, as a rule.
type pace struct {
	method   string
	resource schema.GroupResource
	sub      string
}

// paces remembers whether the last write of each pace was quick.
type paces struct {
	mu sync.Mutex
	// quick is when it was last quick. A pace whose last write was slow is not there.
	quick map[pace]time.Duration
	// wanted is until when long writes were asked for.
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

// wantLong asks for long writes for some time. It returns false if there is no member to ask.
func (w *Writes) wantLong(period time.Duration) bool {
	until := int64(w.env.Now() + period)
	was := w.paces.wanted.Load()
	if until-was < int64(period/4) {
		return true // it was asked a moment ago
	}
	if !w.env.WantLong(time.Duration(until)) {
		return false
	}
	w.paces.wanted.CompareAndSwap(was, until)
	return true
}

// quickness is the longest time that a quick write takes.
func (w *Writes) quickness() time.Duration { return w.env.Config.WriteTimeout / 8 }

// slow notes a write that is not quick.
func (w *Writes) slow(of pace) {
	w.paces.wasSlow(of)
	w.wantLong(slowFor)
}

// beginLong begins a write that may take longer than WriteTimeout. It returns nil if the write may not. Unless writes
// like this one are quick, it waits up to WriteTimeout until the Lease has announced long ones.
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
