package judge

import (
	"fmt"
	"time"
)

// Verdict is what a run showed.
type Verdict struct {
	Figures
	// Gaps is how often the recording of all versions missed some; the audit log has those that were answered.
	Gaps int `json:"recording_gaps,omitempty"`
	// Leaks are what was left behind.
	Leaks []string `json:"leaks,omitempty"`
	// Examples describe what is wrong, a few of each.
	Examples []string `json:"examples,omitempty"`
}

// Figures are what was counted and measured.
type Figures struct {
	// Operations are the accepted writes and the reconciles that were looked at.
	Operations int `json:"operations"`
	Work
	// LongestMillis is the longest overlap; AwakeMillis is the longest without the time for which a process was stopped.
	LongestMillis float64 `json:"longest_overlap_ms"`
	AwakeMillis   float64 `json:"longest_overlap_awake_ms"`
	// Updates are the changes of specifications. SlowestMillis is the longest that one waited for its reconcile while the
	// API server was reachable. Orphans waited longer than allowed.
	Updates       int     `json:"updates"`
	SlowestMillis float64 `json:"slowest_ms"`
	Orphans       int     `json:"orphans"`
	// LostUpdates are objects that are not up to date at the end.
	LostUpdates int `json:"lost_updates"`
	// Deletions are those of objects that were not created again. DeletionsMissed reached no reconcile, although the
	// object had been reconciled and its slot stayed or was handed over.
	Deletions       int `json:"deletions"`
	DeletionsMissed int `json:"deletions_missed"`
	// Misuses are epochs in the table that do not rise, or that belong to two owners of a slot.
	Misuses int `json:"epoch_misuses"`
	// Duties are the figures of duties. The others are of Websites alone.
	Duties DutyFigures `json:"duties"`
}

// Add adds the figures of another run: sums, and the largest of each duration.
func (f *Figures) Add(g Figures) {
	f.Operations += g.Operations
	f.Work.add(g.Work)
	f.LongestMillis = max(f.LongestMillis, g.LongestMillis)
	f.AwakeMillis = max(f.AwakeMillis, g.AwakeMillis)
	f.Updates += g.Updates
	f.SlowestMillis = max(f.SlowestMillis, g.SlowestMillis)
	f.Orphans += g.Orphans
	f.LostUpdates += g.LostUpdates
	f.Deletions += g.Deletions
	f.DeletionsMissed += g.DeletionsMissed
	f.Misuses += g.Misuses
	f.Duties.add(g.Duties)
}

// mostExamples is how many of each kind are described.
const mostExamples = 3

// Judge judges. user is the user as whom the members of a Pod write.
func Judge(e *Evidence, user func(pod string) string) Verdict {
	log := e.writes(user)
	v := Verdict{
		Figures: Figures{Updates: len(e.Updates), Deletions: len(e.Deletions)},
		Gaps:    e.Gaps, Leaks: leaks(e.Before, e.After),
	}
	for _, w := range log.Refused {
		if e.isDuty(w) {
			v.Duties.Refused++
		} else {
			v.Refused++
		}
	}
	var example examples = func(n int, format string, args ...any) {
		if n <= mostExamples {
			v.Examples = append(v.Examples, fmt.Sprintf(format, args...))
		}
	}
	for _, w := range log.Writes {
		if _, member := e.World.Pod(w.User); member {
			v.Operations++
		}
	}
	for _, r := range e.Reconciles {
		if r.Start >= e.Begin {
			v.Operations++
		}
	}
	for _, what := range misuses(log.Tables) {
		v.Misuses++
		example(v.Misuses, "epoch: %s", what)
	}
	for _, f := range log.Foreign(e.World) {
		v.late(e.late(log.Tables, f), example)
	}
	overlaps := e.overlaps(e.Reconciles)
	v.overlap(overlaps, e, example)
	for _, o := range overlaps {
		v.LongestMillis, v.AwakeMillis = max(v.LongestMillis, millis(o.long)), max(v.AwakeMillis, millis(o.awake))
	}
	for _, w := range e.waits() {
		v.SlowestMillis = max(v.SlowestMillis, millis(w.waited))
		if w.never || w.waited > e.Bound {
			v.Orphans++
			example(v.Orphans, "orphan: generation %d of %s, committed at %v, waited %v (slot %d; never reconciled: %t)",
				w.Generation, w.Key.Name, w.Commit, w.waited, e.World.SlotOf(siteOf(w.Update)), w.never)
		}
	}
	for _, o := range e.Objects {
		if o.Observed != o.Generation {
			v.LostUpdates++
			example(v.LostUpdates, "lost update: %s has generation %d, its status shows %d (slot %d)",
				o.Name, o.Generation, o.Observed, e.World.SlotOf(o.Site))
		}
	}
	for _, d := range e.missed(log.Tables) {
		v.DeletionsMissed++
		example(v.DeletionsMissed, "deletion missed: %s at %v (slot %d)", d.Name, d.Commit, e.World.SlotOf(d.Site))
	}
	e.judgeDuties(log, &v.Duties, example)
	return v
}

// Failures says in words what is wrong. Overlaps with a process that was stopped are no failures. Neither are late
// writes where mayBeLate says so: the fault may cause them, and there is no fence.
func (v *Verdict) Failures(mayBeLate bool) []string {
	var out []string
	add := func(n int, what string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, what))
		}
	}
	if !mayBeLate {
		add(v.LateWrites, "late writes")
		add(v.Duties.LateWrites, "late writes of duties")
	}
	add(v.Overlaps, "overlaps without a pause")
	add(v.Orphans, "orphans")
	add(v.LostUpdates, "lost updates")
	add(v.DeletionsMissed, "deletions missed")
	add(v.Misuses, "epochs misused")
	add(v.Duties.Overlaps, "overlaps of duties without a pause")
	add(v.Duties.Gaps, "duties that nobody did for too long")
	add(v.Duties.Stale, "runs of duties that did not see what was written before")
	add(len(v.Leaks), "leaks")
	return out
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
