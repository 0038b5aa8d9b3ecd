package planner

import (
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// This file implements people's orders to the members, which are in the table: to pause moves, to drain a member (rule
// R19), and to pin slots (rule R22).

// orders ends orders that cannot stay, if this member is a planner: those that a process that wants to join cannot
// read, and the drain of an expelled member whose container did not come back.
func (p *proposer) orders(d *draft) {
	t := p.Table
	if p.Phase != Joined || p.Rank < 0 || !t.Ordered() {
		p.planning.orders = 0
		return
	}
	_, format := p.unreadable()
	lost := slices.DeleteFunc(slices.Clone(t.Drains), func(g table.Drain) bool {
		return g.Lost == 0 || p.clockDistance(g.Lost) < int64(crashMemory.Seconds())
	})
	if !p.waited(&p.planning.orders, format > 0 || len(lost) > 0, headStart(p.Rank, p.RetryPeriod)) {
		return
	}
	d.due = true
	if format > 0 {
		d.edit().DropOrders(format)
	}
	for _, g := range lost {
		d.edit().DropDrain(g.ID)
	}
}

// unreadable returns a process that wants to join but cannot read the table because of its orders, and the lowest
// format that these need and the process does not read. The format is 0 if there is no such process.
func (p *proposer) unreadable() (id string, format int) {
	for _, format := range []int{table.OrderFormat, table.PlaceFormat} {
		if id := p.TooOld(format); id != "" && p.Table.Needs() >= format {
			return id, format
		}
	}
	return "", 0
}

// noticeOrders reports that orders end with this change because a process cannot read them.
func (p *proposer) noticeOrders(next *table.Table) {
	t := p.Table
	id, format := p.unreadable()
	if format == 0 || !t.Ordered() || next.Needs() >= t.Needs() || len(next.Members) == 0 {
		return
	}
	what := "a pause or drains in the table, as in the rollback of a release: moves go on, and drained members get " +
		"slots again"
	if t.Needs() >= table.PlaceFormat {
		var pins []string
		for _, pin := range t.Pins {
			pins = append(pins, pin.Object+" to "+pin.Labels)
		}
		what = "orders in the table, as in the rollback of a release. These orders end: "
		if t.Canary.On() {
			what += "the canary of build " + t.Canary.Build + "; "
		}
		if len(pins) > 0 {
			what += "pins (" + strings.Join(pins[:min(len(pins), maxNamedPins)], ", ") + "); "
		}
		if format == table.OrderFormat {
			what += "pauses and drained members; "
		}
		what += "give them again when all members are of a newer release"
	}
	p.notice("OrdersEnded", true, "process %s wants to join and is too old to read %s", id, what)
}

// maxNamedPins is how many pins a message names.
const maxNamedPins = 10

// unwanted reports whether a run moves to a drained member although other members could take it.
func (p *proposer) unwanted(r table.Run) bool {
	return p.Phase != Leaving && p.Table.Drained(r.Next)
}

// label announces this member's labels while there are pins.
func (p *proposer) label(d *draft) {
	if p.Phase != Joined {
		return
	}
	self, _ := d.next.Member(p.Self.ID)
	want := p.labels(d.next)
	if p.waited(&p.delays.label, self.Labels != want, p.Coalesce) {
		self.Labels = want
		d.edit().Put(self)
		d.due = true
	}
}

// labels returns the labels that this member should have in the table.
func (p *proposer) labels(t *table.Table) string {
	if len(t.Pins) == 0 || !t.Reads(table.PlaceFormat) || p.Self.MaxFormat < table.PlaceFormat {
		return ""
	}
	return p.Self.Labels
}

// unmetPins is a planner's record of pins that no member can satisfy.
type unmetPins struct {
	// since is since when there have been some, or 0.
	since time.Duration
	// reported are the labels in the last report.
	reported string
}

// checkPins reports pins that no member could satisfy for a whole lease.
func (p *proposer) checkPins() {
	t, memory := p.Table, &p.pins
	var labels []string
	if p.Phase == Joined && p.Rank == 0 && len(t.Pins) > 0 {
		for _, pin := range t.UnmetPins() {
			if !slices.Contains(labels, pin.Labels) {
				labels = append(labels, pin.Labels)
			}
		}
	}
	if !p.waited(&memory.since, len(labels) > 0, p.LeaseDuration) {
		if len(labels) == 0 {
			memory.reported = ""
		}
		return
	}
	text := strings.Join(labels, " and ")
	if text == memory.reported {
		return
	}
	memory.reported = text
	i := slices.IndexFunc(t.Pins, func(pin table.Pin) bool { return pin.Labels == labels[0] })
	p.notice("PinUnmet", true, "no member that may own the slots has the labels %s, which pins ask for, such as the pin "+
		"of %s: other members own these slots meanwhile", text, t.Pins[i].Object)
}
