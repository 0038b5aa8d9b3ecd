package keeper

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// resetPeriod is the shortest time between two resets of discovery, since a deleted kind is looked up every second.
const resetPeriod = 10 * time.Second

// mapper limits resets of discovery.
type mapper struct {
	meta.ResettableRESTMapper

	mu   sync.Mutex
	last time.Time
}

// Reset drops the cached discovery, unless that was done a moment ago.
func (m *mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.last.IsZero() || now.Sub(m.last) >= resetPeriod {
		m.last = now
		m.ResettableRESTMapper.Reset()
	}
}
