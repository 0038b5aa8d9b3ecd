package judge

// Work is what was counted of the work on Websites, or on duties.
type Work struct {
	// LateWrites are accepted writes by a member that did not own the slot or the duty, while the new owner worked there;
	// LateWritesBetween are those after the change of the table and before the new owner worked. LatestMillis is how
	// long after the change the last of both was answered.
	LateWrites        int     `json:"late_writes"`
	LateWritesBetween int     `json:"late_writes_between"`
	LatestMillis      float64 `json:"latest_ms"`
	// Refused are the writes that the fence refused.
	Refused int `json:"refused"`
	// Overlaps are pairs of reconciles of one object, or of runs of one duty, by two processes at once, neither of which
	// was stopped meanwhile. In PausedOverlaps one of them was.
	Overlaps       int `json:"overlaps"`
	PausedOverlaps int `json:"paused_overlaps"`
}

func (w *Work) add(o Work) {
	w.LateWrites += o.LateWrites
	w.LateWritesBetween += o.LateWritesBetween
	w.LatestMillis = max(w.LatestMillis, o.LatestMillis)
	w.Refused += o.Refused
	w.Overlaps += o.Overlaps
	w.PausedOverlaps += o.PausedOverlaps
}

// examples describes the n-th thing of a kind, unless there are enough.
type examples func(n int, format string, args ...any)

// late counts a late write.
func (w *Work) late(l lateWrite, example examples) {
	n := &w.LateWrites
	if !l.active {
		n = &w.LateWritesBetween
	}
	*n++
	w.LatestMillis = max(w.LatestMillis, millis(l.after))
	example(*n, "late write: %s by %s, %v after it went to %q (others worked there: %t)",
		l.what, l.pod, l.after, l.owner, l.active)
}

// overlap counts overlaps.
func (w *Work) overlap(all []overlap, e *Evidence, example examples) {
	for _, o := range all {
		if o.paused {
			w.PausedOverlaps++
			continue
		}
		w.Overlaps++
		example(w.Overlaps, "overlap: %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key,
			o.A.Pod, o.A.Start, min(o.A.End, e.End), o.A.Epoch, o.B.Pod, o.B.Start, min(o.B.End, e.End), o.B.Epoch)
	}
}
