package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// What is wrong with a slot.
type What uint8

const (
	// WhatUnknown is nothing.
	WhatUnknown What = iota
	// Unowned says that no live member has the slot open.
	Unowned
	// Doubled says that more than one member has the slot open.
	Doubled
	// Differs says that the member that has the slot open does not hold the objects that exist.
	Differs
	// Unread says that the member that has the slot open says nothing of the kind.
	Unread
	// Silent says that a member has slots and no report: it is of a version that does not report, or may not write its ConfigMap.
	Silent
	// Stalled says that a key of the slot has been waiting for a worker for longer than StalledAfter.
	Stalled
)

// StalledAfter is how long a key may wait for a worker before its slot counts as Stalled.
const StalledAfter = 5 * time.Minute

// String returns the name as it stands in metrics.
func (w What) String() string {
	names := [...]string{"unknown", "unowned", "doubled", "differs", "unread", "silent", "stalled"}
	if int(w) >= len(names) {
		return names[0]
	}
	return names[w]
}

// Finding is something that is wrong with a slot.
type Finding struct {
	Slot slot.Slot
	What What
	// Epoch is that of the slot in the table.
	Epoch uint64
	// Members are those that have the slot open, in order, with a space between; for Unowned and Silent its owner by the table, if
	// it has one.
	Members string
	// Kind, Exist and Held are for Differs and Unread: what exists and what the member holds.
	Kind        schema.GroupKind
	Exist, Held delivery.Digest
	// Waiting is for Stalled.
	Waiting time.Duration
}

// Same returns what findings have in common that are about the same thing at different times.
func (f Finding) Same() Finding {
	switch f.What {
	case Differs:
		// What matters is what is missing or too much; the rest of the slot may change.
		f.Exist = delivery.Digest{Objects: f.Exist.Objects - f.Held.Objects, Hashes: f.Exist.Hashes ^ f.Held.Hashes}
	case Unread:
		f.Exist = delivery.Digest{}
	default:
	}
	f.Held, f.Waiting = delivery.Digest{}, 0
	return f
}

// String says what is wrong in a sentence.
func (f Finding) String() string {
	switch f.What {
	case Unowned:
		if f.Members != "" {
			return fmt.Sprintf("slot %d: no member works on it; its owner is %s", f.Slot, f.Members)
		}
		return fmt.Sprintf("slot %d: no member works on it, and it has no owner", f.Slot)
	case Silent:
		return fmt.Sprintf("member %s does not report what it holds: it may lack the permission to write its ConfigMap", f.Members)
	case Doubled:
		return fmt.Sprintf("slot %d: several members work on it: %s", f.Slot, f.Members)
	case Differs:
		more := ""
		if f.Exist.Objects == f.Held.Objects {
			more = ", others"
		}
		return fmt.Sprintf("slot %d: of kind %s there are %d objects, and member %s holds %d%s", f.Slot, f.Kind, f.Exist.Objects, f.Members, f.Held.Objects, more)
	case Unread:
		return fmt.Sprintf("slot %d: there are %d objects of kind %s, of which member %s knows nothing: does an informer of it run?", f.Slot, f.Exist.Objects, f.Kind, f.Members)
	case Stalled:
		return fmt.Sprintf("slot %d: a key has been waiting for a worker of member %s for %v", f.Slot, f.Members, f.Waiting)
	default:
		return fmt.Sprintf("slot %d: nothing is wrong", f.Slot)
	}
}

// Compare returns what is wrong, by slot. Reports of members that the table does not name are left out. census has the kinds that are to be looked at.
func Compare(t *table.Table, reports []*Report, census Digests) []Finding {
	var out []Finding
	kinds := slices.SortedFunc(maps.Keys(census), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
	live := slices.DeleteFunc(slices.Clone(reports), func(r *Report) bool {
		_, ok := t.Member(r.Member)
		return !ok
	})
	silent := map[string]bool{}
	for i := range int(t.Slots) {
		n := slot.Slot(i)
		run := t.At(n)
		if run.Owner != "" && !slices.ContainsFunc(live, func(r *Report) bool { return r.Member == run.Owner }) {
			if !silent[run.Owner] {
				out = append(out, Finding{Slot: n, What: Silent, Members: run.Owner})
			}
			silent[run.Owner] = true
			continue
		}
		var open []*Report
		var names []string
		for _, r := range live {
			if r.Open.Has(n) {
				open, names = append(open, r), append(names, r.Member)
			}
		}
		slices.Sort(names)
		switch len(open) {
		case 0:
			out = append(out, Finding{Slot: n, What: Unowned, Epoch: run.Epoch, Members: run.Owner})
		case 1:
			out = append(out, compareOne(n, run.Epoch, open[0], kinds, census)...)
		default:
			out = append(out, Finding{Slot: n, What: Doubled, Epoch: run.Epoch, Members: strings.Join(names, " ")})
		}
	}
	return out
}

func compareOne(n slot.Slot, epoch uint64, r *Report, kinds []schema.GroupKind, census Digests) []Finding {
	var out []Finding
	for _, kind := range kinds {
		f := Finding{Slot: n, Epoch: epoch, Members: r.Member, Kind: kind, Exist: census[kind][n]}
		held, reads := r.Digests[kind]
		f.Held = held[n]
		switch {
		case f.Exist == f.Held:
			continue
		case !reads:
			f.What = Unread
		default:
			f.What = Differs
		}
		out = append(out, f)
	}
	if w := r.Waiting[n]; w > StalledAfter {
		out = append(out, Finding{Slot: n, What: Stalled, Epoch: epoch, Members: r.Member, Waiting: w})
	}
	return out
}

// Tracker tells findings that last from those that come of looking at different moments. The zero value is ready.
type Tracker struct {
	last map[Finding]bool
}

// Confirm returns those findings that were there the last time, too. Between two calls every member must have had the time
// to report anew, which it does within half of its lease where anything changed.
func (t *Tracker) Confirm(findings []Finding) []Finding {
	now := map[Finding]bool{}
	var out []Finding
	for _, f := range findings {
		key := f.Same()
		now[key] = true
		if t.last[key] {
			out = append(out, f)
		}
	}
	t.last = now
	return out
}
