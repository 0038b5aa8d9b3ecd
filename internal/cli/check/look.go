package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

// lookEvery is the interval of reads while slots move.
const lookEvery = 2 * time.Second

// look reads the rota repeatedly while something moves, for at most Wait.
func (r *run) look(ctx context.Context) (*view.Rota, error) {
	reader, err := view.NewReader(r.cfg, r.Rota.Namespace, r.Rota.Name)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	read := func() (*view.Rota, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return reader.Read(ctx)
	}
	for {
		v, err := read()
		if err != nil {
			return nil, err
		}
		r.remember(v)
		left := r.wait(v) - v.At.Sub(r.first)
		if r.settled(v) || left <= 0 {
			return v, nil
		}
		select {
		case <-time.After(min(lookEvery, left)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// remember records since when slots are closed.
func (r *run) remember(v *view.Rota) {
	if r.first.IsZero() {
		r.first = v.At
	}
	r.closed = v.Closed(r.closed)
}

// movesOf returns the moves that should end on their own. Members that wait for a leader election do not start work on
// slots that they receive, which is a separate problem.
func movesOf(v *view.Rota) []view.Move {
	return slices.DeleteFunc(slices.Clone(v.Moves), func(m view.Move) bool {
		report := v.Reports[m.To]
		return m.Phase == "activate" && report != nil && report.Waits != ""
	})
}

// settled reports whether another read would show nothing new.
func (r *run) settled(v *view.Rota) bool {
	hasProblem := func(what string) bool {
		return slices.ContainsFunc(v.Problems, func(p view.Problem) bool { return p.What == what })
	}
	return (len(movesOf(v)) == 0 || hasProblem(view.MoveStuck)) && (len(r.closed) == 0 || hasProblem(view.SlotClosed))
}

// wait returns how long to keep reading.
func (r *run) wait(v *view.Rota) time.Duration {
	if r.Longer && len(r.closed) > 0 {
		return max(r.Wait, recovery(v)+lookEvery)
	}
	return r.Wait
}

// recovery is how long slots may be closed before it is a problem.
func recovery(v *view.Rota) time.Duration {
	return coverage.BoundsBy(slices.Collect(maps.Values(v.Reports))).Recovery
}

// moves warns about moves that were in progress at each read.
func (r *run) moves(v *view.Rota) {
	looked := v.At.Sub(r.first)
	type kind struct{ from, to, phase, duty string }
	runs := map[kind][]view.Run{}
	var kinds []kind
	for _, m := range movesOf(v) {
		// Longer moves are already problems.
		if m.Seconds == nil || *m.Seconds > view.MoveLongest.Seconds() || *m.Seconds < looked.Seconds() {
			continue
		}
		k := kind{m.From, m.To, m.Phase, m.Duty}
		if runs[k] == nil {
			kinds = append(kinds, k)
		}
		runs[k] = append(runs[k], view.Run{First: m.First, Last: m.Last})
	}
	for _, k := range kinds {
		l := Line{Level: Warning, Code: view.MoveStuck, Slots: view.SlotsText(runs[k]...), Member: k.to}
		what := "they have"
		if k.duty != "" {
			what, l.Slots = "duty "+k.duty+" has", ""
		}
		if k.phase == "drain" {
			l.Member = k.from
		}
		l.Text = fmt.Sprintf("%s been moving to %s for %s so far, in phase %s: as long as this check has run", what, k.to,
			seconds(looked), k.phase)
		l.Cure = "it may end soon. Check for longer: " + r.again(v, view.MoveLongest+2*lookEvery)
		r.add(groupSlots, l)
	}
}

// open checks whether owners work on their slots, according to their reports.
func (r *run) open(v *view.Rota) {
	if v.Shadow != nil {
		return
	}
	closed, since, sure := map[string]slot.Set{}, map[string]time.Time{}, map[string]bool{}
	for c, at := range r.closed {
		// A report from before a slot's handover does not cover the slot.
		sure[c.Owner] = sure[c.Owner] || v.ReportsAfter(c.Owner, c.Epoch)
		set := closed[c.Owner]
		set.Add(c.Slot)
		closed[c.Owner] = set
		if first, ok := since[c.Owner]; !ok || at.Before(first) {
			since[c.Owner] = at
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(closed)) {
		if slices.ContainsFunc(v.Problems, func(p view.Problem) bool {
			return p.What == view.SlotClosed && p.Member == owner
		}) {
			continue
		}
		level := Warning
		if sure[owner] {
			level = Failed // no member works on them now, however briefly
		}
		r.add(groupSlots, Line{Level: level, Code: view.SlotClosed, Slots: view.SetText(closed[owner]), Member: owner,
			Text: fmt.Sprintf("the owner reports that it does not work on them, for %s so far",
				seconds(v.At.Sub(since[owner]))),
			Cure: fmt.Sprintf("it may start soon. It is a problem after %s: %s", seconds(recovery(v)),
				r.again(v, recovery(v)+2*lookEvery))})
	}
	owners, reporting := 0, 0
	for _, m := range v.Members {
		if m.Owned > 0 {
			owners++
			if v.Reports[m.ID] != nil {
				reporting++
			}
		}
	}
	switch {
	case reporting < owners && !unknownIn(v, "reports") && !r.found(groupCoverage, view.ReportMissing):
		r.warn(groupSlots, view.ReportMissing, "members that have just joined will report soon: try again",
			"%d of %d owners do not report whether they work on their slots", owners-reporting, owners)
	case reporting == owners && owners > 0 && !slices.ContainsFunc(v.Runs, func(run view.Run) bool { return run.Closed }):
		r.good(groupSlots, view.SlotClosed, "owners report that they work on their slots")
	}
}

// again returns the command that checks for longer.
func (r *run) again(v *view.Rota, wait time.Duration) string {
	return fmt.Sprintf("rota check -n %s %s --wait %s", v.Namespace, v.Name, seconds(wait))
}

func seconds(d time.Duration) time.Duration { return max(0, d).Round(time.Second) }

// unknownIn reports whether something could not be read.
func unknownIn(v *view.Rota, what string) bool {
	_, unread := v.Unread(what)
	return unread
}
