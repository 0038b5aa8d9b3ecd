package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/test/rig/journal"
)

// writes returns the audit log, and adds the accepted writes that it lacks: the API server died before it answered, or
// answered with an error although etcd had committed the write.
func (e *Evidence) writes(user func(pod string) string) *Log {
	log := *e.Audit
	log.Writes = slices.Clip(log.Writes)
	log.Tables = slices.Clone(log.Tables)
	log.Saw(e.Seen)
	log.Others = slices.Clip(log.Others)
	for _, w := range e.unlogged(log.Writes, e.Versions, user) {
		w.Resource, w.Subresource = "websites", "status"
		log.Writes = append(log.Writes, w)
	}
	for _, w := range e.unlogged(log.Others, e.Duties.Versions, user) {
		w.Resource, w.Site = dutyResource, Site{}
		log.Others = append(log.Others, w)
	}
	return &log
}

// unlogged returns the writes by members that made a version and that are not among those of the log.
func (e *Evidence) unlogged(
	logged []Write, versions []Recorded, user func(pod string) string,
) (out []Write) {
	type made struct{ uid, version string }
	known := map[made]bool{}
	for _, w := range logged {
		if w.Object != nil {
			known[made{w.Object.Metadata.UID, w.Object.Metadata.ResourceVersion}] = true
		}
	}
	for _, v := range versions {
		if v.Process == "" || known[made{v.UID, v.Number}] {
			continue
		}
		w := Write{
			User: user(e.PodOf(v.Process)), Verb: "patch", Site: v.Site, Name: v.Name, Received: v.At, Done: v.At,
			Object: &Object{},
		}
		w.Object.Metadata.UID, w.Object.Metadata.ResourceVersion = v.UID, v.Number
		out = append(out, w)
	}
	return out
}

// lateWrite is an accepted write by a member that did not own the object's slot, or the duty, any more, or never had.
type lateWrite struct {
	// what was written, and by which Pod. owner had the slot or the duty by then.
	what, pod, owner string
	// after is how long after the slot or the duty was taken the write was answered; 0 if the writer never had it.
	after time.Duration
	// active is true if another Pod worked there by then.
	active bool
}

// late judges a foreign write to a Website.
func (e *Evidence) late(tables History, f ForeignWrite) lateWrite {
	l := lateWrite{
		what: fmt.Sprintf("%s %s %s (slot %d, %s)", f.Verb, f.Name, f.Subresource, f.Slot, f.Versions()),
		pod:  f.Pod, owner: f.Owner,
	}
	e.measure(&l, tables, f.Write, func(v Version) string { return v.Owner(f.Slot) }, e.Reconciles,
		func(r journal.Reconcile) bool {
			its, known := e.slotOf(r)
			return known && its == f.Slot
		})
	return l
}

// measure fills in how late a write was: after the last version of the table before it that took from the writer what
// owner tells. runs that are about the same show whether another Pod worked by then.
func (e *Evidence) measure(
	l *lateWrite, tables History, w Write, owner func(Version) string, runs []journal.Reconcile,
	about func(journal.Reconcile) bool,
) {
	l.active = true
	for i := len(tables) - 1; i > 0; i-- {
		taken := tables[i]
		if w.Object != nil && resourceversion.Compare(taken.Version, version(w)) > 0 || owner(tables[i-1]) != l.pod {
			continue
		}
		from, to := e.at(taken.Received), e.at(w.Done)
		l.after = w.Done.Sub(e.answered(taken))
		l.active = slices.ContainsFunc(runs, func(r journal.Reconcile) bool {
			return from <= r.Start && r.Start <= to && e.PodOf(r.Pod) != l.pod && about(r)
		})
		return
	}
}

// answered is when the write of a version of the table was answered.
func (e *Evidence) answered(v Version) time.Time {
	if v.Done.IsZero() { // the audit log has neither this version nor a later one
		return e.BeginWall.Add(v.At - e.Begin)
	}
	return v.Done
}
