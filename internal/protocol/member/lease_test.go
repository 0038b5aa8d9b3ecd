package member

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Many members renew less often, so that an API server has about as much to do with them as with some hundred (rule R1).
func TestR1CrowdsRenewLessOften(t *testing.T) {
	for _, c := range []struct {
		members     int
		lease, want time.Duration // lease 0: the default
	}{
		{0, 0, 2 * time.Second},
		{3, 0, 2 * time.Second},
		{500, 0, 2 * time.Second},
		{600, 0, 2400 * time.Millisecond},
		{1000, 0, 3500 * time.Millisecond}, // a quarter of a lease, less an eighth of RetryPeriod
		{4000, 0, 3500 * time.Millisecond},
		{1000, time.Minute, 14 * time.Second},
	} {
		m := &Member{cfg: Config{LeaseDuration: c.lease}}
		m.cfg.SetDefaults()
		if c.members > 0 {
			m.snap.Table = table.New(4096, slot.KeyName, 1)
			for i := range c.members {
				m.snap.Table.Put(table.Member{ID: fmt.Sprintf("m-%d", i), Weight: 1})
			}
		}
		if got := m.period(); got != c.want {
			t.Errorf("%d members: every %v, want %v", c.members, got, c.want)
		}
		// Time is heard as it passes, and a renewal that fails is tried again before the deadline.
		if got := m.period(); got >= m.cfg.LeaseDuration/4 || got+2*m.cfg.WriteTimeout > m.cfg.RenewDeadline {
			t.Errorf("%d members, lease %v: every %v", c.members, m.cfg.LeaseDuration, got)
		}
	}
}
