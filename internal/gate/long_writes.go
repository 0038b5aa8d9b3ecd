package gate

import (
	"sync"
	"sync/atomic"
)

// LongWrites controls whether this member's writes may take longer than WriteTimeout, and counts those under way (rule
// R2). The zero value allows none. Its methods may be called concurrently and do not block.
type LongWrites struct {
	mu      sync.Mutex
	allowed bool
	// changed is closed when long writes are allowed. It is nil if no write waits for that.
	changed  chan struct{}
	underWay int
	// ended is called when no long write is under way any more. It is nil unless Withdraw waits for that.
	ended func()
}

// Allow allows long writes.
func (l *LongWrites) Allow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed, l.ended = true, nil
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Withdraw stops allowing long writes. It calls ended once none is under way, possibly before it returns, unless Allow
// is called first.
func (l *LongWrites) Withdraw(ended func()) {
	l.mu.Lock()
	l.allowed = false
	if l.underWay > 0 {
		l.ended = ended
		ended = nil
	}
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
}

// Begin counts a long write as under way until end is called; further calls do nothing. If end is nil, long writes are
// not allowed now, and the allowed channel is closed when they are.
func (l *LongWrites) Begin() (end func(), allowed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.allowed {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return nil, l.changed
	}
	l.underWay++
	var over atomic.Bool
	return func() {
		if !over.Swap(true) {
			l.end()
		}
	}, nil
}

func (l *LongWrites) end() {
	l.mu.Lock()
	l.underWay--
	var ended func()
	if l.underWay == 0 {
		ended, l.ended = l.ended, nil
	}
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
}
