package demo

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// phase is when a part of a story was, by both clocks.
type phase struct {
	name               string
	start, end         time.Duration
	wallStart, wallEnd time.Time
	sites              []judge.Site // at the start
	// victim is the replica that was killed; "": none.
	victim       string
	killed       time.Duration
	victimsSlots slot.Set
}

func (p *phase) begin() { p.start, p.wallStart = journal.Now(), time.Now() }

func (p *phase) finish() { p.end, p.wallEnd = journal.Now(), time.Now() }

// Phase is what one phase showed. What could not be measured for want of an audit log is null.
type Phase struct {
	Name string `json:"name"`
	// MovedSlots are the slots that changed their owner, MovesPerSlot how often on average.
	MovedSlots   int     `json:"moved_slots"`
	MovesPerSlot float64 `json:"moves_per_slot"`
	// MovedObjects are the Websites in those slots and their children, counted once per move.
	MovedObjects int `json:"moved_objects"`
	// ObjectWrites are writes made only in order to move objects.
	ObjectWrites *int `json:"object_writes"`
	TableWrites  int  `json:"table_writes"`
	// ListedObjects are the Websites and children in the lists that members made: those of the phase's start that the
	// request selects, also for labellers, which look through the metadata of all objects of a kind when they begin.
	ListedObjects *int `json:"listed_objects"`
	// Stall is how much longer than usual a change to a Website on the move waited for its reconcile.
	Stall   verdict.Spread `json:"stall_ms"`
	Seconds float64        `json:"seconds"`
	// GapSeconds is the longest time without a reconcile; only in a migration.
	GapSeconds float64 `json:"gap_seconds,omitempty"`
}

// records are what a run left for the judge.
type records struct {
	*rig.Records
	history   judge.History
	moves     []judge.Move
	latencies []judge.Latency
	audit     *judge.Log // nil: there is none
	// median is how long a change waited while the replicas were undisturbed.
	median time.Duration
}

// measure returns what a phase showed.
func (s *Show) measure(p *phase, rec *records) (Phase, error) {
	out := Phase{Name: p.name, Seconds: (p.end - p.start).Round(100 * time.Millisecond).Seconds()}
	windows, perSlot := map[slot.Slot][]judge.Move{}, map[slot.Slot]int{}
	for _, site := range p.sites {
		perSlot[s.world().SlotOf(site)]++
	}
	transfers := 0
	for _, m := range rec.moves {
		if m.Active <= p.start || m.Active > p.end {
			continue
		}
		if m.From == p.victim && p.victim != "" {
			m.Planned = min(m.Planned, p.killed)
		}
		windows[m.Slot] = append(windows[m.Slot], m)
		transfers += m.Transfers
		out.MovedObjects += perSlot[m.Slot] * (1 + len(rig.ChildKinds)) * m.Transfers
	}
	out.MovedSlots = len(windows)
	out.MovesPerSlot = float64(transfers) / float64(max(out.MovedSlots, 1))
	waits := judge.Waits(rec.latencies, rec.median, func(l judge.Latency) bool {
		moved := windows[s.world().SlotOf(judge.Site{NamespacedName: l.Key, UID: l.UID})]
		return slices.ContainsFunc(moved, func(m judge.Move) bool { return m.Planned <= l.Commit && l.Commit <= m.Active })
	})
	out.Stall = verdict.SpreadOf(waits)
	s.view.log("%s: %d changes to Websites on the move measured", p.name, len(waits))
	if rec.audit == nil {
		for _, v := range rec.history {
			if v.At > p.start && v.At <= p.end {
				out.TableWrites++
			}
		}
		return out, nil
	}
	out.TableWrites = rec.audit.TableWrites(p.wallStart, p.wallEnd)
	writes := rec.audit.MoveWrites(s.world(), p.wallStart, p.wallEnd)
	for _, w := range writes[:min(3, len(writes))] {
		s.view.log("%s: a write only to move: %s %s/%s %s by %s", p.name, w.Verb, w.Resource, w.Subresource, w.Name, w.User)
	}
	listed, err := rec.audit.ListedBy(s.world(), p.wallStart, p.wallEnd, p.sites)
	n := len(writes)
	out.ObjectWrites, out.ListedObjects = &n, &listed
	return out, err
}

// takenOver is how long after a kill the victim's slots were worked on again.
func (s *Show) takenOver(p *phase, rec *records) time.Duration {
	worked := map[slot.Slot]time.Duration{}
	for _, r := range rec.Reconciles {
		if r.UID == "" || r.Pod == p.victim || r.Start <= p.killed {
			continue
		}
		in := s.world().SlotOf(judge.Site{NamespacedName: r.Key, UID: r.UID})
		if at, ok := worked[in]; p.victimsSlots.Has(in) && (!ok || r.Start < at) {
			worked[in] = r.Start
		}
	}
	took := judge.TakenOver(rec.moves, p.victimsSlots, p.killed, worked)
	s.view.log("%s: the killed replica's %d slots were worked on again %.1f s after the kill", p.name,
		p.victimsSlots.Len(), took.Seconds())
	return took
}
