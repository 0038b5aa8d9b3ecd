package member_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Options that do not fit together are refused, with what to change (rules R2, R7).
func TestR02R07OptionsFitTogether(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*member.Config)
		want   string
	}{
		{"defaults", func(*member.Config) {}, ""},
		{"a short lease", func(c *member.Config) { c.LeaseDuration = 3 * time.Second }, ""},
		{"only just", func(c *member.Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 20*time.Second, 10*time.Second, 5*time.Second
		}, ""},
		{"a lease of nothing", func(c *member.Config) { c.LeaseDuration = 3 }, "RetryPeriod 0s: must be above 0"},
		{"deadline beyond the lease", func(c *member.Config) { c.RenewDeadline = 15 * time.Second }, "the lease must be longer"},
		{"one try", func(c *member.Config) { c.RetryPeriod = 6 * time.Second }, "at least two renewals"},
		{"rare renewals", func(c *member.Config) { c.RenewDeadline, c.RetryPeriod = 12*time.Second, 4*time.Second }, "four times in a lease"},
		{"long writes", func(c *member.Config) { c.WriteTimeout = 10 * time.Second }, "end before the deadline"},
		{"no fence wait", func(c *member.Config) { c.FenceDelay = 2 * time.Second }, "last write"},
		{"negative", func(c *member.Config) { c.WriteTimeout = -1 }, "above 0"},
		{"slots", func(c *member.Config) { c.Slots = 100 }, "power of two"},
		{"weight", func(c *member.Config) { c.Self.Weight = -1 }, "Weight"},
		{"name", func(c *member.Config) { c.Self.ID = "two words" }, "one printable word"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := member.Config{Self: table.Member{ID: "a"}}
			c.change(&cfg)
			cfg.SetDefaults()
			err := cfg.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The defaults are those that docs/protocol.md promises, and follow the lease.
func TestDefaults(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		lease time.Duration
		want  []time.Duration
	}{
		{0, []time.Duration{15000 * ms, 10000 * ms, 2000 * ms, 2000 * ms, 2500 * ms, 50 * ms, 2000 * ms, 1000 * ms, 10000 * ms}},
		{3000 * ms, []time.Duration{3000 * ms, 2000 * ms, 400 * ms, 600 * ms, 1100 * ms, 50 * ms, 2000 * ms, 1000 * ms, 10000 * ms}},
	} {
		cfg := member.Config{LeaseDuration: c.lease}
		cfg.SetDefaults()
		got := []time.Duration{
			cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.WriteTimeout, cfg.FenceDelay,
			cfg.Coalesce, cfg.SettleDelay, cfg.JoinDelay, cfg.RolloutDelay,
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("lease %v: got %v, want %v", c.lease, got, c.want)
		}
	}
}

// Once ended, a member does nothing and wants nothing.
func TestEndedMembersAreSilent(t *testing.T) {
	cfg := member.Config{Self: table.Member{ID: "a"}}
	cfg.SetDefaults()
	m := member.New(cfg)
	now := member.Time{Mono: time.Second}
	m.Step(now, member.Tick{})
	m.Step(now, member.Renewed{Outcome: member.OutcomeConflict})
	if !m.Ended() || m.Wake() <= time.Hour || m.Step(now, member.Tick{}) != nil {
		t.Errorf("ended %v, wake %v", m.Ended(), m.Wake())
	}
}

// R2: a long write, sent as late as it may be, ends before others take the member for dead, though its clock runs a
// thirteenth slower than other clocks. It has ten seconds for as long as the member renews on time.
func TestLongWritesEndBeforeTheLease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Second, 15 * time.Second, time.Minute} {
		var c member.Config
		c.LeaseDuration = lease
		c.SetDefaults()
		for age := time.Duration(0); age <= c.RenewDeadline; age += c.RenewDeadline / 100 {
			left := c.RenewDeadline - age
			timeout := c.LongTimeout(left)
			if ends := (age+c.SendWithin())/12*13 + timeout; ends > lease && timeout > min(left, c.WriteTimeout) {
				t.Errorf("a write that is sent %v after a renewal has %v, and ends after %v", age, timeout, ends)
			}
			if lease == 15*time.Second && age <= c.RetryPeriod && timeout < 10*time.Second {
				t.Errorf("a write that is sent %v after a renewal has %v, want 10s at least", age, timeout)
			}
		}
		if timeout := c.LongTimeout(math.MaxInt64 / 2); timeout != 34*time.Second {
			t.Errorf("without a deadline a write has %v, want 34s", timeout)
		}
	}
}
