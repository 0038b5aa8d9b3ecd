package judge

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
)

// overlap is a time for which two processes reconciled one object.
type overlap struct {
	Overlap
	// long is how long it took, awake without the time for which one of both was stopped.
	long, awake time.Duration
	// paused says that one of both was stopped within its reconcile.
	paused bool
}

// overlaps returns the overlaps of reconciles, or of the runs of duties.
func (e *Evidence) overlaps(all []journal.Reconcile) []overlap {
	var out []overlap
	for _, pair := range Overlaps(all, e.Ended, e.World.Key == slot.KeyUID) {
		from, to := max(pair.A.Start, pair.B.Start), min(pair.A.End, pair.B.End, e.End)
		if to <= e.Begin || from >= e.End {
			continue // another run's
		}
		o := overlap{Overlap: pair, long: to - from, awake: to - from}
		for _, p := range e.Pauses {
			for _, r := range []journal.Reconcile{pair.A, pair.B} {
				if p.Process == r.Pod && p.From < r.End && r.Start < p.To {
					o.paused = true
					o.awake -= max(0, min(to, p.To)-max(from, p.From))
				}
			}
		}
		out = append(out, o)
	}
	return out
}

// wait is how long a change waited for the beginning of a reconcile that saw it.
type wait struct {
	Update
	waited time.Duration
	never  bool
}

// waits leaves out changes of objects that are gone, and that no reconcile saw.
func (e *Evidence) waits() []wait {
	there := map[types.NamespacedName]string{}
	for _, o := range e.Objects {
		there[o.NamespacedName] = o.UID
	}
	seen := map[Update]time.Duration{}
	for _, l := range Latencies(e.Updates, e.Reconciles) {
		seen[l.Update] = l.Commit + l.Waited
	}
	var out []wait
	for _, u := range e.Updates {
		at, ok := seen[u]
		if !ok && there[u.Key] != u.UID {
			continue
		}
		if !ok {
			at = e.End
		}
		out = append(out, wait{u, max(0, at-max(u.Commit, e.Reachable)), !ok})
	}
	return out
}

// missed returns the deletions that no reconcile saw, of objects that had been reconciled and whose slot stayed where
// it was or was only handed over.
func (e *Evidence) missed(tables History) []Deletion {
	gone := map[types.NamespacedName]time.Duration{} // the last reconcile that found nothing
	for _, r := range e.Reconciles {
		if r.UID == "" {
			gone[r.Key] = max(gone[r.Key], r.Start)
		}
	}
	var out []Deletion
	for _, d := range e.Deletions {
		if at, ok := gone[d.NamespacedName]; ok && at >= d.Begun || !e.Known[d.UID] {
			continue
		}
		if !broken(tables, e.World.SlotOf(d.Site)) {
			out = append(out, d)
		}
	}
	return out
}

// broken reports whether a slot was unowned during the run, or was taken from an owner that had not handed it over.
func broken(tables History, s slot.Slot) bool {
	for i, v := range tables {
		run := v.Table.At(s)
		cause := v.Table.Notes[run.Epoch].Cause
		if run.Owner == "" || i > 0 && run.Unsettled && cause != table.CauseHanded {
			return true
		}
	}
	return false
}

func siteOf(u Update) Site { return Site{NamespacedName: u.Key, UID: u.UID} }
