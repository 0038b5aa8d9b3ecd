package keeper

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// resetPeriod is the least time between two resets of discovery. A kind that is deleted is looked for each second.
const resetPeriod = 10 * time.Second

// mapper resets discovery only so often.
type mapper struct {
	meta.ResettableRESTMapper

	mu   sync.Mutex
	last time.Time
}

// Reset forgets what is known of kinds, unless that was done a moment ago.
func (m *mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.last.IsZero() || now.Sub(m.last) >= resetPeriod {
		m.last = now
		m.ResettableRESTMapper.Reset()
	}
}
