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
	// LateWrites are accepted writes by a member that did not own the duty, while the new owner did it;
	// LateWritesBetween are those after the change of the table and before the new owner did it. LatestMillis is how long
	// after the change the last of both was answered. Refused are the writes that the fence refused.
	LateWrites        int     `json:"late_writes"`
	LateWritesBetween int     `json:"late_writes_between"`
	LatestMillis      float64 `json:"latest_ms"`
	Refused           int     `json:"refused"`
	// Overlaps are pairs of runs of one duty by two processes at once, neither of which was stopped meanwhile. In
	// PausedOverlaps one of them was.
	Overlaps       int `json:"overlaps"`
	PausedOverlaps int `json:"paused_overlaps"`
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
	f.LateWrites += g.LateWrites
	f.LateWritesBetween += g.LateWritesBetween
	f.LatestMillis = max(f.LatestMillis, g.LatestMillis)
	f.Refused += g.Refused
	f.Overlaps += g.Overlaps
	f.PausedOverlaps += g.PausedOverlaps
	f.LongestGapMillis = max(f.LongestGapMillis, g.LongestGapMillis)
	f.Gaps += g.Gaps
	f.Stale += g.Stale
}

// isDuty says whether a write is one of a duty.
func (e *Evidence) isDuty(w Write) bool {
	return w.Resource == dutyResource && slices.Contains(e.Duties.Names, w.Name)
}

// judgeDuties fills in the figures of duties.
func (e *Evidence) judgeDuties(log *Log, f *DutyFigures, example func(n int, format string, args ...any)) {
	for _, r := range e.Duties.Runs {
		if r.Start >= e.Begin {
			f.Runs++
		}
	}
	writes := e.dutyWrites(log)
	for _, w := range writes {
		f.Writes++
		if w.own() {
			continue
		}
		l := e.dutyLate(log.Tables, w)
		n := &f.LateWrites
		if !l.active {
			n = &f.LateWritesBetween
		}
		*n++
		f.LatestMillis = max(f.LatestMillis, millis(l.after))
		example(*n, "late write: duty %s by %s, %v after it went to %q (version %s; others did it: %t)",
			w.Name, w.pod, l.after, w.owner, w.version(), l.active)
	}
	for _, o := range e.overlaps(e.Duties.Runs) {
		if o.paused {
			f.PausedOverlaps++
			continue
		}
		f.Overlaps++
		example(f.Overlaps, "overlap: duty %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key.Name,
			o.A.Pod, o.A.Start, min(o.A.End, e.End), o.A.Epoch, o.B.Pod, o.B.Start, min(o.B.End, e.End), o.B.Epoch)
	}
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

// late is a write by a member that had lost the duty, or never had it.
type late struct {
	// after is how long after the duty was taken the write was answered; 0 where the writer never had it.
	after time.Duration
	// active says that another Pod did the duty by then.
	active bool
}

func (e *Evidence) dutyLate(tables History, w dutyWrite) late {
	for i := len(tables) - 1; i > 0; i-- {
		taken := tables[i]
		if resourceversion.Compare(taken.Version, w.version()) > 0 || tables[i-1].DutyOwner(w.Name) != w.pod {
			continue
		}
		from, to := e.at(taken.Received), e.at(w.Done)
		return late{w.Done.Sub(e.answered(taken)), slices.ContainsFunc(e.Duties.Runs, func(r journal.Reconcile) bool {
			return r.Key.Name == w.Name && from <= r.Start && r.Start <= to && e.PodOf(r.Pod) != w.pod
		})}
	}
	return late{active: true}
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
