package view

import (
	"github.com/rota-dev/rota/internal/protocol/planner"
)

// memoryProblems adds a problem if slots wait for memory, or would with one member fewer (rule R23). It returns whether
// slots wait.
func (r *Rota) memoryProblems(add func(s Severity, what, slots, member, message string, args ...any)) (waits bool) {
	gone := map[string]bool{"": true}
	var reports []planner.MemoryReport
	owned, takes, most := 0, int64(0), int64(0)
	for _, m := range r.Members {
		if m.Renewed == nil || m.State == Silent {
			gone[m.ID] = true
			continue
		}
		report := planner.MemoryReport{}
		if m.Memory != nil {
			report = planner.MemoryReport(*m.Memory)
		}
		reports = append(reports, report)
		owned, takes, most = owned+m.Owned, takes+max(report.Used-report.Base, 0), max(most, report.Usable()-report.Used)
	}
	need, room, ok := planner.Spare(reports)
	if !ok && len(reports) != 1 || len(reports) == 1 && reports[0].Limit == 0 {
		return false
	}
	const mib = 1 << 20
	waiting := r.runsOf(func(run Run) bool { return gone[run.Owner] })
	switch {
	case len(waiting) > 0 && owned > 0 && most < takes/int64(owned):
		add(Error, NoRoom, SlotsText(waiting...), "", "no member works on them, because none has enough memory for "+
			"another slot: one takes about %d MiB. Start another member, or raise the memory limit",
			takes/int64(owned)/mib)
		return true
	case len(waiting) == 0 && ok && need > room:
		add(Warn, NoSpareMemory, "", "", "there is no memory to lose a member: there are %d members, the slots of one need "+
			"%d MiB, and the others have room for %d MiB. Give each more memory, or add members",
			len(reports), need/mib, room/mib)
	}
	return false
}
