package judge

import (
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/test/rig/journal"
)

// dutyResource is what duties write to.
const dutyResource = "configmaps"

// DutyFigures are what was counted and measured of duties.
type DutyFigures struct {
	// Runs are the runs of duties that were looked at, Writes their accepted writes.
	Runs   int `json:"runs"`
	Writes int `json:"writes"`
	Work
	// LongestGapMillis is the longest time from one write of a duty by its owner to the next, while the API server was
	// reachable. Gaps are those that were longer than allowed.
	LongestGapMillis float64 `json:"longest_gap_ms"`
	Gaps             int     `json:"gaps"`
	// Stale are the runs whose cache did not show what had been written in the duty before their member got it.
	Stale int `json:"stale"`
}

func (f *DutyFigures) add(g DutyFigures) {
	f.Runs += g.Runs
	f.Writes += g.Writes
	f.Work.add(g.Work)
	f.LongestGapMillis = max(f.LongestGapMillis, g.LongestGapMillis)
	f.Gaps += g.Gaps
	f.Stale += g.Stale
}

// isDuty says whether a write is one of a duty.
func (e *Evidence) isDuty(w Write) bool {
	return w.Resource == dutyResource && slices.Contains(e.Duties.Names, w.Name)
}

// judgeDuties fills in the figures of duties.
func (e *Evidence) judgeDuties(log *Log, f *DutyFigures, example examples) {
	for _, r := range e.Duties.Runs {
		if r.Start >= e.Begin {
			f.Runs++
		}
	}
	writes := e.dutyWrites(log)
	for _, w := range writes {
		f.Writes++
		if !w.own() {
			f.late(e.dutyLate(log.Tables, w), example)
		}
	}
	f.overlap(e.overlaps(e.Duties.Runs), e, example)
	for _, g := range e.gaps(writes) {
		f.LongestGapMillis = max(f.LongestGapMillis, millis(g.long))
		if g.long > e.Duties.Bound {
			f.Gaps++
			example(f.Gaps, "gap: nobody did duty %s from %v for %v; the bound is %v", g.duty, g.from, g.long, e.Duties.Bound)
		}
	}
	for _, r := range e.Duties.Runs {
		if last, stale := stale(r, log.Tables, writes); stale {
			f.Stale++
			example(f.Stale, "stale: %s did duty %s in epoch %d at %v by version %d of its ConfigMap, but version %s is older "+
				"than the epoch", r.Pod, r.Key.Name, r.Epoch, r.Start, r.Generation, last)
		}
	}
}

// dutyWrite is an accepted write of a duty.
type dutyWrite struct {
	Write
	// pod wrote, and owner had the duty by the table; "" is nobody.
	pod, owner string
}

func (w dutyWrite) own() bool { return w.pod == w.owner }

func (w dutyWrite) version() string { return w.Object.Metadata.ResourceVersion }

// dutyWrites returns the accepted writes of duties by members, in the order of their versions.
func (e *Evidence) dutyWrites(log *Log) (out []dutyWrite) {
	for _, w := range log.Others {
		pod, member := e.World.Pod(w.User)
		if !member || !e.isDuty(w) {
			continue
		}
		one := dutyWrite{Write: w, pod: pod}
		if v, ok := log.Tables.At(one.version()); ok {
			one.owner = v.DutyOwner(w.Name)
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b dutyWrite) int { return resourceversion.Compare(a.version(), b.version()) })
	return out
}

func (e *Evidence) dutyLate(tables History, w dutyWrite) lateWrite {
	l := lateWrite{what: "duty " + w.Name + " (version " + w.version() + ")", pod: w.pod, owner: w.owner}
	e.measure(&l, tables, w.Write, func(v Version) string { return v.DutyOwner(w.Name) }, e.Duties.Runs,
		func(r journal.Reconcile) bool { return r.Key.Name == w.Name })
	return l
}

// gap is a time in which nobody did a duty.
type gap struct {
	duty string
	from time.Duration
	long time.Duration
}

// gaps returns the times between writes of a duty by its owner, without the time in which no member could reach the API
// server. The beginning and the end of the run count as writes.
func (e *Evidence) gaps(writes []dutyWrite) (out []gap) {
	for _, name := range e.Duties.Names {
		at := []time.Duration{e.Begin, e.End}
		for _, w := range writes {
			if when := e.at(w.Done); w.Name == name && w.own() && e.Begin < when && when < e.End {
				at = append(at, when)
			}
		}
		slices.Sort(at)
		for i := 1; i < len(at); i++ {
			from := max(at[i-1], e.Reachable)
			out = append(out, gap{name, from, max(0, at[i]-from)})
		}
	}
	return out
}

// stale says whether a controller's run found an older version of the duty's ConfigMap than the last one from before
// its member got the duty, and returns that version.
func stale(r journal.Reconcile, tables History, writes []dutyWrite) (last string, yes bool) {
	if r.Generation == 0 {
		return "", false
	}
	i := slices.IndexFunc(tables, func(v Version) bool { return dutyRun(v, r.Key.Name).Epoch == r.Epoch })
	if i < 0 {
		return "", false // it has the duty since before the run
	}
	for _, w := range writes {
		if w.Name == r.Key.Name && resourceversion.Compare(w.version(), tables[i].Version) < 0 {
			last = w.version()
		}
	}
	return last, last != "" && resourceversion.Compare(last, strconv.FormatInt(r.Generation, 10)) > 0
}

// dutyRun returns the duty's run in a version of the table.
func dutyRun(v Version, name string) table.Run {
	if s, ok := v.Table.DutySlot(name); ok {
		return v.Table.At(s)
	}
	return table.Run{}
}
