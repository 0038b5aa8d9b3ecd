package view

import (
	"github.com/rota-dev/rota/internal/protocol/planner"
)

// memoryProblems adds that slots wait for memory, or that those of one member fewer would (rule R23). It returns
// whether some wait.
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
		add(Error, NoRoom, SlotsText(waiting...), "", "nobody works on them, and as members report their memory, none has "+
			"room for another slot: one takes about %d MiB. Start another member, or raise the memory limit",
			takes/int64(owned)/mib)
		return true
	case len(waiting) == 0 && ok && need > room:
		add(Warn, NoSpareMemory, "", "", "one member fewer would not fit: there are %d members, the slots of one need "+
			"%d MiB, and the others have room for %d MiB. Give each more memory, or add members",
			len(reports), need/mib, room/mib)
	}
	return false
}
