package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
)

// Phase is a part of a run: when it was, by both clocks, and who was killed in it.
type Phase struct {
	Name               string
	Start, End         time.Duration
	WallStart, WallEnd time.Time
	// Sites are the Websites at its start.
	Sites []Site
	// Victim is the process that was killed, or empty. Killed is when, KilledEpoch the table's epoch by then, and
	// VictimsSlots is what it had.
	Victim       string
	Killed       time.Duration
	KilledEpoch  uint64
	VictimsSlots slot.Set
}

// Begin sets the start to now.
func (p *Phase) Begin() { p.Start, p.WallStart = journal.Now(), time.Now() }

// Finish sets the end to now.
func (p *Phase) Finish() { p.End, p.WallEnd = journal.Now(), time.Now() }

// Records are what a run left.
type Records struct {
	World
	History    History
	Moves      []Move
	Latencies  []Latency
	Reconciles []journal.Reconcile
	// Audit is nil if there is no audit log.
	Audit *Log
}

// Moved is what the moves of a phase were, and what they cost.
type Moved struct {
	// Slots changed their owner, in so many Transfers. Objects are the Websites in them and their children, once per
	// transfer.
	Slots, Transfers, Objects int
	// Waits are how much longer than usual changes to Websites on the move waited for their reconcile, in order.
	Waits []time.Duration
	// Writes were made only to move objects, and Listed is how many objects members listed. Both need an audit log.
	Writes      []Write
	Listed      int
	TableWrites int
}

// Moved returns the moves of a phase. usual is how long changes wait while nothing moves.
func (r *Records) Moved(p *Phase, usual time.Duration) (out Moved, err error) {
	windows, perSlot := map[slot.Slot][]Move{}, map[slot.Slot]int{}
	for _, site := range p.Sites {
		perSlot[r.SlotOf(site)]++
	}
	for _, m := range r.Moves {
		if m.Active <= p.Start || m.Active > p.End {
			continue
		}
		if m.From == p.Victim && p.Victim != "" {
			m.Planned = min(m.Planned, p.Killed)
		}
		windows[m.Slot] = append(windows[m.Slot], m)
		out.Transfers += m.Transfers
		out.Objects += perSlot[m.Slot] * len(kinds) * m.Transfers
	}
	out.Slots = len(windows)
	out.Waits = Waits(r.Latencies, usual, func(l Latency) bool {
		moved := windows[r.SlotOf(Site{NamespacedName: l.Key, UID: l.UID})]
		return slices.ContainsFunc(moved, func(m Move) bool { return m.Planned <= l.Commit && l.Commit <= m.Active })
	})
	if r.Audit != nil {
		out.TableWrites = r.Audit.TableWrites(p.WallStart, p.WallEnd)
		out.Writes = r.Audit.MoveWrites(r.World, p.WallStart, p.WallEnd)
		out.Listed, err = r.Audit.ListedBy(r.World, p.WallStart, p.WallEnd, p.Sites)
		return out, err
	}
	for _, v := range r.History {
		if v.At > p.Start && v.At <= p.End {
			out.TableWrites++
		}
	}
	return out, nil
}

// TakenOver is how long after the kill the first and the last of the victim's slots were worked on again.
func (r *Records) TakenOver(p *Phase) (first, last time.Duration) {
	worked := map[slot.Slot]time.Duration{}
	for _, one := range r.Reconciles {
		if one.UID == "" || one.Epoch <= p.KilledEpoch || one.Start <= p.Killed {
			continue
		}
		in := r.SlotOf(Site{NamespacedName: one.Key, UID: one.UID})
		if at, ok := worked[in]; p.VictimsSlots.Has(in) && (!ok || one.Start < at) {
			worked[in] = one.Start
		}
	}
	if len(worked) > 0 {
		first = slices.Min(slices.Collect(maps.Values(worked))) - p.Killed
	}
	return first, TakenOver(r.Moves, p.VictimsSlots, p.Killed, worked)
}

// Excused is true if a deletion is one that nobody may have seen: see Crash.Excuses.
func (r *Records) Excused(d Deletion, phases []*Phase) bool {
	return slices.ContainsFunc(phases, func(p *Phase) bool {
		return p.Victim != "" &&
			r.History.CrashOf(p.Victim, p.Killed).Excuses(r.Moves, r.SlotOf(d.Site), d.Commit, p.End)
	})
}
