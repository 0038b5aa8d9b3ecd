package planner

import (
	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
)

// LoadReport is a member's report of its slots' loads, and of a canary.
type LoadReport struct {
	ID string
	// Serial rises with each report of a member.
	Serial uint64
	// ByLoad is the member's Config.ByLoad.
	ByLoad bool
	// Open are the slots that the report covers: those that the member had open.
	Open slot.Set
	// Loads are the loads of slots, or of groups of slots. A group may contain slots outside Open. Slots that are left out
	// have no load.
	Loads []Busy
	// Trial counts the member's reconciles in the current step of a canary. It is nil if the member did not see a step
	// begin.
	Trial *Trial
}

// Busy is how many workers the keys of slots keep busy together, in thousandths of a worker.
type Busy struct {
	Slots   slot.Range
	Workers int64
}

// perSlot returns the load of each slot that the report covers. It returns nil if the report is impossible: it names
// slots that do not exist, or twice, or loads out of range. n is the number of slots.
func (r *LoadReport) perSlot(n int) map[slot.Slot]int64 {
	out := map[slot.Slot]int64{}
	for _, s := range r.Open.Slots() {
		out[s] = 0
	}
	next := 0
	for _, l := range r.Loads {
		if first, last := int(l.Slots.First), int(l.Slots.Last); first < next || last < first || last >= n {
			return nil
		}
		next = int(l.Slots.Last) + 1
		mine := r.Open.Intersect(slot.SetOf(l.Slots))
		each := l.Workers / int64(max(mine.Len(), 1))
		if each < 0 || each > plan.MaxLoad {
			return nil
		}
		for _, s := range mine.Slots() {
			out[s] = each
		}
	}
	return out
}

// Trial is a member's report of a canary's step: the results of its reconciles since it saw the step begin, and how
// many of its objects keep failing.
type Trial struct {
	Build string
	Began int64
	Step  int
	trial.Side
}
