package sim

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

// Timeline is what people want to see of a life: who owned the slots, whose gates were open, what was in flight, how
// the processes fared. Options.Timeline gets one filled.
type Timeline struct {
	slots  int
	end    time.Duration
	faults []FaultSpan
	broken []mark
	tables []mark
	owners [][]span // by slot
	lanes  []*lane
	of     map[*Node]*lane
	byID   map[string]*lane
}

// lane is one process.
type lane struct {
	id, about string
	life      span
	how       string // it ended
	paused    []span
	lapsed    []span
	leaving   time.Duration
	renewals  []mark // of its Lease
	open      [][]span
	flights   map[*flight]int // into inFlight
	inFlight  []keySpan
	writes    []keySpan
}

// span is a time, of a member where that matters; one without end goes on.
type span struct {
	from, till time.Duration
	who        string
}

// keySpan is one of a key.
type keySpan struct {
	key
	span
}

// mark is a moment.
type mark struct {
	at   time.Duration
	text string
}

const goesOn = time.Duration(1<<63 - 1)

// last ends the last span, if it goes on.
func last(spans []span) *span {
	if n := len(spans); n > 0 && spans[n-1].till == goesOn {
		return &spans[n-1]
	}
	return nil
}

// follow makes spans begin or end, so that one goes on while on.
func follow(spans []span, on bool, now time.Duration, who string) []span {
	l := last(spans)
	switch {
	case l != nil && on && l.who == who:
		return spans
	case l != nil:
		l.till = now
	}
	if on {
		spans = append(spans, span{now, goesOn, who})
	}
	return spans
}

// record notes how things stand. It is called after everything that happens.
func (t *Timeline) record(w *World) {
	if t.of == nil {
		t.of, t.byID = map[*Node]*lane{}, map[string]*lane{}
	}
	t.slots, t.end, t.faults = int(w.opts.Slots), w.now, w.Faults
	for _, v := range w.violations[len(t.broken):] {
		t.broken = append(t.broken, mark{w.now, v.String()})
	}
	for _, n := range w.Nodes {
		l := t.of[n]
		if l == nil {
			l = &lane{
				id: n.ID, about: about(n),
				life: span{w.now, goesOn, ""}, leaving: -1,
				open: make([][]span, t.slots), flights: map[*flight]int{},
			}
			t.lanes = append(t.lanes, l)
			t.of[n], t.byID[n.ID] = l, l
		}
		if l.life.till == goesOn {
			l.record(n, w.now)
		}
	}
}

func about(n *Node) string {
	text := fmt.Sprintf("clock %.2f", n.rate)
	if n.Replica.Build != "" {
		text = n.Replica.Build + ", " + text
	}
	return text
}

func (l *lane) record(n *Node, now time.Duration) {
	if n.Dead {
		l.life.till = now
		switch {
		case n.Stopped == nil:
			l.how = "crashed"
		case n.Stopped.Err == nil:
			l.how = "left"
		default:
			l.how = n.Stopped.Err.Error()
		}
	}
	l.paused = follow(l.paused, n.Paused && !n.Dead, now, "")
	l.lapsed = follow(l.lapsed, n.late() >= n.deadline && n.deadline > 0 && !n.Dead, now, "")
	if n.Leaving && l.leaving < 0 {
		l.leaving = now
	}
	open := n.Open()
	for s := range l.open {
		l.open[s] = follow(l.open[s], open.Has(slot.Slot(s)), now, "")
	}
	for f, i := range l.flights {
		if n.work.flights[f.key] != f || n.Dead {
			l.inFlight[i].till = now
			delete(l.flights, f)
		}
	}
	for _, f := range n.work.flights {
		if _, ok := l.flights[f]; !ok && !n.Dead {
			l.flights[f] = len(l.inFlight)
			l.inFlight = append(l.inFlight, keySpan{f.key, span{now, goesOn, ""}})
		}
	}
}

// change notes a change of the objects.
func (t *Timeline) change(w *World, c memory.Change) {
	switch {
	case t.byID == nil:
	case c.Lease != nil:
		if l := t.byID[c.Lease.ID]; l != nil {
			l.renewals = append(l.renewals, mark{w.now, fmt.Sprintf("Lease written, open %t", c.Lease.Open)})
		}
	case c.Gone != "":
		if l := t.byID[c.Gone]; l != nil {
			l.renewals = append(l.renewals, mark{w.now, "Lease deleted"})
		}
	default:
		by := "by hand"
		if w.writer != nil {
			by = "by " + w.writer.ID
		}
		t.tables = append(t.tables, mark{w.now, "changed " + by})
		if t.owners == nil {
			t.owners = make([][]span, t.slots)
		}
		for s := range t.owners {
			owner := ""
			if tab := c.Table.Table; tab != nil && s < int(tab.Slots) {
				owner = tab.At(slot.Slot(s)).Owner
			}
			t.owners[s] = follow(t.owners[s], owner != "", w.now, owner)
		}
	}
}

// wrote notes a write for a key that commits.
func (t *Timeline) wrote(n *Node, k key) {
	if l := t.of[n]; l != nil {
		l.writes = append(l.writes, keySpan{k, span{n.w.now, n.w.now, ""}})
	}
}
