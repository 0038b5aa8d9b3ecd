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
		members                      int
		lease, deadline, retry, want time.Duration // 0: the default
	}{
		{0, 0, 0, 0, 2 * time.Second},
		{3, 0, 0, 0, 2 * time.Second},
		{500, 0, 0, 0, 2 * time.Second},
		{600, 0, 0, 0, 2400 * time.Millisecond},
		{1000, 0, 0, 0, 3500 * time.Millisecond}, // a quarter of a lease, less an eighth of RetryPeriod
		{4000, 0, 0, 0, 3500 * time.Millisecond},
		{1000, time.Minute, 0, 0, 14 * time.Second},
		{4000, 30 * time.Second, 10 * time.Second, 2 * time.Second, 5 * time.Second}, // half the deadline
		{1000, 30 * time.Second, 6 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		m := &Member{cfg: Config{LeaseDuration: c.lease, RenewDeadline: c.deadline, RetryPeriod: c.retry}}
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
		// Time is heard as it passes, and there is time for another try before the deadline.
		if got := m.period(); got >= m.cfg.LeaseDuration/4 || got > m.cfg.RenewDeadline/2 {
			t.Errorf("%d members, lease %v: every %v", c.members, m.cfg.LeaseDuration, got)
		}
	}
}

// Many members that got slots at the same time do not all say at the same time that they are active.
func TestR3CrowdsSettleOneAfterTheOther(t *testing.T) {
	delays := map[time.Duration]bool{}
	for i := range 300 {
		m := &Member{cfg: Config{Self: table.Member{ID: fmt.Sprintf("m-%d", i)}}}
		m.cfg.SetDefaults()
		m.snap.Table = table.New(4096, slot.KeyName, 1)
		for k := range 300 {
			m.snap.Table.Put(table.Member{ID: fmt.Sprintf("m-%d", k), Weight: 1})
			if n := k + 1; n <= 100 && m.settleDelay() != m.cfg.SettleDelay {
				t.Fatalf("%d members: after %v, want %v", n, m.settleDelay(), m.cfg.SettleDelay)
			}
		}
		d := m.settleDelay()
		if d < m.cfg.SettleDelay || d >= 4*m.cfg.SettleDelay {
			t.Errorf("300 members: after %v, want from %v to four times that", d, m.cfg.SettleDelay)
		}
		delays[d.Truncate(100*time.Millisecond)] = true
	}
	if len(delays) < 50 {
		t.Errorf("300 members settle at %d different tenths of a second, of 60", len(delays))
	}
}
