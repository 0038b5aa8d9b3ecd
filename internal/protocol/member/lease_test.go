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

// A member that suspects another renews more often, so that heard time goes on, but not again in the same moment, also
// where RetryPeriod is the unit of time (rule R1).
func TestR1SuspicionDoesNotRenewAtOnce(t *testing.T) {
	cfg := Config{LeaseDuration: 8, RenewDeadline: 4, RetryPeriod: 1}
	cfg.SetDefaults()
	m := New(cfg)
	m.watch.suspects, m.watch.all, m.lease.mine.UID = true, true, "lease"
	renews := func() bool {
		m.now.Mono, m.out = 100, nil
		m.keepLease()
		m.lease.underWay = false
		return len(m.out) > 0
	}
	if !renews() || renews() {
		t.Error("it does not renew, or renews twice in one moment")
	}
}
