package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file has the people who pause moves and drain members (rule R19). They change the table as members do: by a swap
// on condition of the version that they read.

// Order changes the table as a person's command does. It says why not, if it does not.
func (w *World) Order(change func(*table.Table)) error {
	return w.order(w.Objects.Table(), change)
}

// order makes a change from a version of the table that may be old by now.
func (w *World) order(s member.Snapshot, change func(*table.Table)) error {
	if s.Missing() || s.Table == nil || s.Table.UID != s.UID {
		return errors.New("the table is missing, or not adopted")
	}
	next := s.Table.Clone()
	change(next)
	next.Seal(s.Table.Epoch + 1)
	if err := next.Valid(); err != nil {
		return err
	}
	w.person = true
	_, outcome := w.Objects.SwapTable(next, s.UID, s.Version)
	w.Sync()
	w.person = false
	if outcome != member.OutcomeDone {
		return fmt.Errorf("swap: %v", outcome)
	}
	w.Counts.Orders++
	return nil
}

// checkOrder looks at a change of the table by a person, and at what a member does while there are orders.
func (w *World) checkOrder(old, t *table.Table) {
	w.checkPlaces(old, t)
	if w.person {
		for s := range min(old.Total(), t.Total()) {
			was, is := old.At(slot.Slot(s)), t.At(slot.Slot(s))
			was.Slots, is.Slots = slot.Range{}, slot.Range{}
			begins := is.Next != "" && was.Owner != "" && was.Next == ""
			if begins { // a rebalance
				to, there := t.Member(is.Next)
				if !there || to.Leaving || old.Paused() || t.Drained(is.Next) {
					w.violate("ordered", "a person's command begins to move slot %v to %s", slot.Slot(s), is.Next)
				}
				was.Next = is.Next
			}
			if is != was {
				w.violate("ordered", "a person's command changes slot %v", slot.Slot(s))
			}
		}
		return
	}
	if !old.Ordered() {
		return
	}
	w.Coverage.Rules[19]++
	for i := range min(t.Total(), old.Total()) {
		s := slot.Slot(i)
		was, is := old.At(s), t.At(s)
		owner, stays := t.Member(was.Owner)
		if is.Next == "" || is.Next == was.Next || is.Owner != was.Owner || !stays || owner.Leaving {
			continue
		}
		if old.Paused() {
			w.violate("moved", "%s begins to move slot %v from %s to %s, and moves are paused",
				w.writer.ID, s, was.Owner, is.Next)
		}
		if old.Drained(is.Next) {
			w.violate("moved", "%s begins to move slot %v from %s to %s, which is drained",
				w.writer.ID, s, was.Owner, is.Next)
		}
	}
	if is, was := t.Ordered(), old.Ordered(); was && !is && len(t.Members) > 0 {
		w.Counts.OrdersEnded++
	}
}

// undrained says why a drained member, or one that a canary sets apart, should have less; empty: all is well. Where
// everybody else is on probation it may keep what it has.
func (w *World) undrained(t *table.Table, fair bool) string {
	others := false
	for _, m := range t.Members {
		others = others || !t.Drained(m.ID)
	}
	if t.Paused() || !others || !fair {
		return ""
	}
	can := t.Can()
	for _, r := range t.Runs {
		owner, _ := t.Member(r.Owner)
		if !t.Drained(r.Owner) && (!t.Apart(owner) || !t.IsDuty(r.Slots.First)) {
			continue
		}
		if !t.IsDuty(r.Slots.First) {
			return fmt.Sprintf("drained member %s owns slots %v", r.Owner, r.Slots)
		}
		for _, m := range t.Members {
			if !t.Drained(m.ID) && !t.Apart(m) && can(m, r.Slots.First) {
				return fmt.Sprintf("drained member, or one of a canary, %s has duty %s, which %s can do", r.Owner,
					t.Duty(r.Slots.First), m.ID)
			}
		}
	}
	return ""
}

// Rebalance begins the moves that make shares even, as a person's command does.
func (w *World) Rebalance(t *table.Table) {
	if next, err := planner.Rebalance(t, w.Wall(), nil); err == nil && next != t {
		w.Counts.Rebalanced++
		*t = *next
	}
}

// drawOrders decides whether people give orders in this life: in one of three. They have a source of chance of their
// own, so that lives without them stay what they were.
func (c *Chaos) drawOrders() {
	c.people = rand.New(rand.NewPCG(c.opts.Seed, 4)) // must be repeatable
	c.orders = c.people.IntN(3) == 0
	// Those who even out have a source of their own, too.
	c.eveners = rand.New(rand.NewPCG(c.opts.Seed, 5)) // must be repeatable
	c.evens = c.eveners.IntN(6) == 0
}

// soon is a random duration of the people's.
func (c *Chaos) soon(low, high time.Duration) time.Duration {
	return low + time.Duration(c.people.Int64N(int64(high-low)))
}

// evenOut has people even out shares now and then, until faults have ended.
func (c *Chaos) evenOut() {
	if !c.evens {
		return
	}
	c.after(time.Second+time.Duration(c.eveners.Int64N(int64(20*time.Second))), func() {
		if !c.over {
			c.tryOrder(c.Rebalance, 5)
			c.evenOut()
		}
	})
}

// giveOrders has people pause, resume, drain and undrain now and then, until faults have ended.
func (c *Chaos) giveOrders() {
	if !c.orders {
		return
	}
	c.after(c.soon(200*time.Millisecond, 15*time.Second), func() {
		if c.over {
			return
		}
		c.tryOrder(c.drawOrder(), 5)
		c.giveOrders()
	})
}

// drawOrder chooses what is asked for.
func (c *Chaos) drawOrder() func(*table.Table) {
	since := epochStart + int64(c.now/time.Second)
	nth := c.people.IntN(1 << 20)
	switch c.people.IntN(6) {
	case 0:
		return func(t *table.Table) { t.Pause = table.Pause{Since: since, By: "somebody", Reason: "a look at it"} }
	case 1, 2:
		return func(t *table.Table) { t.Pause = table.Pause{} }
	case 3, 4:
		return func(t *table.Table) {
			if n := len(t.Members); n > 0 {
				t.PutDrain(t.Members[nth%n].ID, since, "somebody", "")
			}
		}
	default:
		return func(t *table.Table) {
			if n := len(t.Drains); n > 0 {
				t.Undrain(t.Drains[nth%n].ID)
			}
		}
	}
}

// tryOrder reads the table and swaps it a moment later, and again where that met a conflict. A command does nothing
// while it does not like the table.
func (c *Chaos) tryOrder(change func(*table.Table), tries int) {
	s := c.Objects.Table()
	c.after(c.soon(time.Millisecond, 100*time.Millisecond), func() {
		if c.alarm || c.over || s.Table == nil || tries == 0 {
			return
		}
		if err := c.order(s, change); err != nil {
			c.logf("an order is refused: %v", err)
			c.tryOrder(change, tries-1)
		}
	})
}

// endOrders ends what people asked for. While the members recover a table, people try again, so many times.
func (c *Chaos) endOrders(tries int) {
	if t := c.Objects.Table().Table; !c.orders && !c.places || t == nil || !t.Ordered() {
		return
	}
	c.logf("moves go on, and nobody is drained any more")
	err := c.Order(func(t *table.Table) { t.DropOrders(table.OldestFormat) })
	switch {
	case err != nil && tries > 1:
		c.after(time.Second, func() { c.endOrders(tries - 1) })
	case err != nil:
		c.violate("ordered", "the orders cannot be ended: %v", err)
	}
}

// giveFormat decides which formats a pod reads, where members read different ones and people give orders.
func (c *Chaos) giveFormat(r *Replica) {
	if c.orders && c.formats {
		r.MaxFormat = table.OldestFormat + c.people.IntN(table.Format)
		if c.people.IntN(2) == 0 {
			r.MaxFormat = 0
		}
	}
}
