package judge

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
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

// lateWrite is an accepted write by a member that did not own the object's slot any more, or never had.
type lateWrite struct {
	ForeignWrite
	// after is how long after the slot was taken it was answered; 0 where the writer never had it.
	after time.Duration
	// active says that the new owner worked in the slot by then.
	active bool
}

func (e *Evidence) late(log *Log) []lateWrite {
	var out []lateWrite
	for _, f := range log.Foreign(e.World) {
		l := lateWrite{ForeignWrite: f, active: true}
		if taken, ok := takenFrom(log.Tables, f); ok {
			l.after = f.Done.Sub(e.answered(taken))
			began, works := e.activity(f.Slot, f.Pod, e.at(taken.Received))
			l.active = works && began <= e.at(f.Done)
		}
		out = append(out, l)
	}
	return out
}

// answered is when the write of a version of the table was answered.
func (e *Evidence) answered(v Version) time.Time {
	if v.Done.IsZero() { // the audit log has neither this version nor a later one
		return e.BeginWall.Add(v.At - e.Begin)
	}
	return v.Done
}

// takenFrom returns the version of the table that took the slot from the writer, the last one before the write.
func takenFrom(tables History, f ForeignWrite) (Version, bool) {
	for i := len(tables) - 1; i > 0; i-- {
		if f.Object != nil && resourceversion.Compare(tables[i].Version, f.Object.Metadata.ResourceVersion) > 0 {
			continue
		}
		if tables[i-1].Owner(f.Slot) == f.Pod {
			return tables[i], true
		}
	}
	return Version{}, false
}

// activity returns when another Pod first began to work in a slot after a time.
func (e *Evidence) activity(s slot.Slot, pod string, after time.Duration) (first time.Duration, ok bool) {
	for _, r := range e.Reconciles {
		if r.Start < after || ok && r.Start >= first || e.PodOf(r.Pod) == pod {
			continue
		}
		if its, known := e.slotOf(r); known && its == s {
			first, ok = r.Start, true
		}
	}
	return first, ok
}
