package member

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Config configures a member. SetDefaults fills in zero fields.
type Config struct {
	// Self is the member's entry in the table. ID must be new with every process start. Duties are the duties that the
	// member can do. It announces them once every member reads table.DutyFormat (rule R18).
	Self table.Member
	// Former are the IDs of this process's earlier incarnations. They must no longer have anything in flight.
	Former []string
	// Slots and Key must be the same for all members.
	Slots slot.Count
	Key   slot.Key

	// LeaseDuration is how long other members wait after the last change of a member's Lease before they expel it. Default
	// 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long a member goes on working after the start of its last successful renewal. It must be
	// shorter than LeaseDuration. Default 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, unless there are more than 500 members (Member.period). Default 2 s.
	RetryPeriod time.Duration
	// WriteTimeout is the longest server-side timeout of a write, unless the Lease announces longer ones (LongestWrite).
	// Default 2 s.
	WriteTimeout time.Duration
	// FenceDelay is how long the new owners of an expelled member's slots wait. It must cover WriteTimeout and the lag of
	// the fence. Default WriteTimeout + 0.5 s.
	FenceDelay time.Duration
	// Coalesce is how long a change of the table waits for other changes, to be written with them. Default 50 ms.
	Coalesce time.Duration
	// SettleDelay is how long the change that marks slots as settled waits for another write to go with. Default 2 s.
	SettleDelay time.Duration
	// JoinDelay is how long a joiner waits for its share, so that members that start together are planned together.
	// Default 1 s.
	JoinDelay time.Duration
	// RolloutDelay replaces JoinDelay while the members have several builds. A member of another build is then likely to
	// leave soon, and the joiner can take its slots in one move. Default 10 s.
	RolloutDelay time.Duration
	// MaxTable is the largest size of the table's text, in bytes. A change that would exceed it is reduced. Default 15/16
	// of table.MaxSize.
	MaxTable int
	// Outlives is set if work in a slot may go on until the member's deadline after the member has ended or lost the slot,
	// because workers elsewhere do it (docs/dispatch.md). All members must agree on it.
	Outlives bool
	// ByLoad makes planners balance the cost of reconciles instead of the number of slots (rule R21). All members should
	// agree on it.
	ByLoad bool
	// LoadPeriod is the time between two reads of the members' loads. Default twice LeaseDuration.
	LoadPeriod time.Duration
	// Seed seeds the jitter.
	Seed uint64
}

// SetDefaults fills in zero fields.
func (c *Config) SetDefaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.LeaseDuration, 15*time.Second)
	set(&c.RenewDeadline, c.LeaseDuration*2/3)
	set(&c.RetryPeriod, c.RenewDeadline/5)
	set(&c.WriteTimeout, min(2*time.Second, c.RenewDeadline*3/10))
	set(&c.FenceDelay, c.WriteTimeout+500*time.Millisecond)
	set(&c.Coalesce, 50*time.Millisecond)
	set(&c.SettleDelay, 2*time.Second)
	set(&c.JoinDelay, time.Second)
	set(&c.RolloutDelay, 10*time.Second)
	set(&c.LoadPeriod, 2*c.LeaseDuration)
	if c.MaxTable == 0 {
		c.MaxTable = table.MaxSize / 16 * 15
	}
	if c.Slots == 0 {
		c.Slots = slot.DefaultCount
	}
	if c.Key == slot.KeyUnknown {
		c.Key = slot.KeyName
	}
	if c.Self.Weight == 0 {
		c.Self.Weight = 1
	}
	c.Self.MinFormat, c.Self.MaxFormat = table.OldestFormat, table.Format
}

// LongestWrite is the time that a Lease announces: by then, counted from the start of a renewal, the member's last
// write has ended (rule R2). The remaining thirteenth of the lease allows for clocks that run faster than the API
// servers'.
func (c *Config) LongestWrite() time.Duration { return c.LeaseDuration / 13 * 12 }

// SendWithin is how long a long write may wait for a connection and be in transit.
func (c *Config) SendWithin() time.Duration { return c.WriteTimeout / 2 }

// stockTimeout is the API servers' own limit for a request without a shorter timeout.
const stockTimeout = 34 * time.Second

// LongTimeout is the server-side timeout of a write that is sent within SendWithin while AllowLong allows it. left is
// the time until the deadline. The member's clock may run a thirteenth slower than the API servers'.
func (c *Config) LongTimeout(left time.Duration) time.Duration {
	sent := c.RenewDeadline - left + c.SendWithin() // since the start of the last renewal
	return max(min(c.LongestWrite()-sent/12*13, stockTimeout), min(left, c.WriteTimeout))
}

// Validate returns an error that names the fields to change if they do not fit together.
func (c *Config) Validate() error {
	if err := c.Slots.Validate(); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LeaseDuration", c.LeaseDuration}, {"RenewDeadline", c.RenewDeadline}, {"RetryPeriod", c.RetryPeriod},
		{"WriteTimeout", c.WriteTimeout}, {"FenceDelay", c.FenceDelay},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s %v: must be above 0", d.name, d.value)
		}
	}
	switch {
	case c.LeaseDuration <= c.RenewDeadline:
		return fmt.Errorf("LeaseDuration %v, RenewDeadline %v: the lease must be longer, "+
			"so that a member stops before others take its slots; the defaults are 15s and 10s",
			c.LeaseDuration, c.RenewDeadline)
	case c.RenewDeadline < 2*c.RetryPeriod:
		return fmt.Errorf("RenewDeadline %v, RetryPeriod %v: the deadline must leave room for at least two renewals; "+
			"the defaults are 10s and 2s", c.RenewDeadline, c.RetryPeriod)
	case c.RetryPeriod > c.LeaseDuration/4:
		return fmt.Errorf("RetryPeriod %v, LeaseDuration %v: renew at least four times in a lease; "+
			"the defaults are 2s and 15s", c.RetryPeriod, c.LeaseDuration)
	case c.WriteTimeout >= c.RenewDeadline:
		return fmt.Errorf("WriteTimeout %v, RenewDeadline %v: a write must be able to end before the deadline; "+
			"the defaults are 2s and 10s", c.WriteTimeout, c.RenewDeadline)
	case c.FenceDelay <= c.WriteTimeout:
		return fmt.Errorf("FenceDelay %v, WriteTimeout %v: new owners must wait longer than an expelled member's "+
			"last write can take; leave FenceDelay out for WriteTimeout + 0.5s", c.FenceDelay, c.WriteTimeout)
	case c.Self.Weight < 1:
		return fmt.Errorf("Weight %d: must be at least 1", c.Self.Weight)
	}
	return table.ValidMember(c.Self)
}

// rules returns the part of the configuration that planners use.
func (c *Config) rules() planner.Config {
	return planner.Config{
		Self: c.Self, Former: c.Former, MaxTable: c.MaxTable, Outlives: c.Outlives, ByLoad: c.ByLoad,
		LeaseDuration: c.LeaseDuration, RetryPeriod: c.RetryPeriod, LoadPeriod: c.LoadPeriod, Coalesce: c.Coalesce,
		SettleDelay: c.SettleDelay, JoinDelay: c.JoinDelay, RolloutDelay: c.RolloutDelay,
	}
}
