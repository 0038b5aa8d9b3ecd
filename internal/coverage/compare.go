package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// What is the kind of a finding.
type What uint8

const (
	// WhatUnknown is the zero value: no finding.
	WhatUnknown What = iota
	// Unowned means that no live member has the slot open.
	Unowned
	// Doubled means that more than one member has the slot open.
	Doubled
	// Differs means that the member that has the slot open does not hold the objects that exist.
	Differs
	// Unread means that the report of the member that has the slot open does not include the kind.
	Unread
	// Silent means that a member has slots and no report: its version does not report, or it may not write Leases.
	Silent
	// Stalled means that a key of the slot has been waiting for a worker for longer than StalledAfter.
	Stalled
	// Mixed means that members differ in a setting or a kind, and not because of a rollout. It concerns no slot.
	Mixed
	// Unlisted means that a kind cannot be listed, so its existing objects are unknown. It concerns no slot.
	Unlisted
)

// StalledAfter is how long a key may wait for a worker before its slot counts as Stalled.
const StalledAfter = 5 * time.Minute

var whatNames = [...]string{"unknown", "unowned", "doubled", "differs", "unread", "silent", "stalled", "mixed",
	"unlisted"}

// Whats returns all kinds of findings.
func Whats() []What {
	var out []What
	for w := range whatNames[1:] {
		out = append(out, What(w+1))
	}
	return out
}

// String returns the name used in metrics.
func (w What) String() string {
	if int(w) >= len(whatNames) {
		return whatNames[0]
	}
	return whatNames[w]
}

// Finding is a problem with a slot or with members.
type Finding struct {
	Slot slot.Slot
	// Last is the last slot of the finding, 0 if the finding is about Slot only. Members with very many kinds and slots
	// combine several slots in one digest.
	Last slot.Slot
	What What
	// Epoch is the epoch of the slot in the table, the highest one if there are several slots.
	Epoch uint64
	// Members are the members that have the slot open, in order, separated by spaces. For Unowned and Silent, it is the
	// owner according to the table, if any.
	Members string
	// Kind, Exist and Held are set for Differs and Unread: what exists and what the member holds.
	Kind        schema.GroupKind
	Exist, Held sharding.Digest
	// Waiting is set for Stalled.
	Waiting time.Duration
	// About, Values and Clash are set for Mixed; see Difference.
	About, Values, Clash string
}

// Same returns a finding reduced to the parts that stay the same while the problem lasts.
func (f Finding) Same() Finding {
	switch f.What {
	case Differs:
		// Only what is missing or surplus matters; the rest of the slot may change.
		f.Exist = sharding.Digest{Objects: f.Exist.Objects - f.Held.Objects, Hashes: f.Exist.Hashes ^ f.Held.Hashes}
	case Unread:
		f.Exist = sharding.Digest{}
	case Mixed:
		f.Members, f.Values = "", "" // members come and go
	default:
	}
	if f.What == Silent {
		f.Slot = 0 // the first slot may change
	}
	f.Held, f.Waiting = sharding.Digest{}, 0
	return f
}

// slots describes the slots of the finding.
func (f Finding) slots() string {
	if f.Last > f.Slot {
		return fmt.Sprintf("slots %d-%d", f.Slot, f.Last)
	}
	return fmt.Sprintf("slot %d", f.Slot)
}

// String describes the finding in a sentence.
func (f Finding) String() string {
	switch f.What {
	case Unowned:
		if f.Members != "" {
			return fmt.Sprintf("%s: no member works on it; its owner is %s", f.slots(), f.Members)
		}
		return fmt.Sprintf("%s: no member works on it, and it has no owner", f.slots())
	case Silent:
		return fmt.Sprintf("member %s does not report what it holds, so it cannot be checked: it may lack the "+
			"permission to write Leases", f.Members)
	case Doubled:
		return fmt.Sprintf("%s: several members work on it: %s", f.slots(), f.Members)
	case Differs:
		more := ""
		if f.Exist.Objects == f.Held.Objects {
			more = ", others"
		}
		return fmt.Sprintf("%s: of kind %s there are %d objects, and member %s holds %d%s", f.slots(), f.Kind,
			f.Exist.Objects, f.Members, f.Held.Objects, more)
	case Unread:
		return fmt.Sprintf("%s: there are %d objects of kind %s, and member %s reports none: does an informer of it "+
			"run?",
			f.slots(), f.Exist.Objects, f.Kind, f.Members)
	case Stalled:
		return fmt.Sprintf("%s: a key has been waiting for a worker of member %s for %v", f.slots(), f.Members, f.Waiting)
	case Mixed:
		text := fmt.Sprintf("members differ in %s: %s", f.About, f.Values)
		if f.Clash != "" {
			return text + "; " + f.Clash
		}
		return text + "; no rollout lasts that long: set them up alike"
	case Unlisted:
		return fmt.Sprintf("%s cannot be listed, so it is unknown whether all its objects are worked on", f.Kind)
	default:
		return fmt.Sprintf("%s: nothing is wrong", f.slots())
	}
}

// Compare returns the findings at this moment, by slot. Tracker decides which of them count. Reports of members that
// are not in the table are ignored. census contains the kinds to look at.
func Compare(t *table.Table, reports []*Report, census Digests) []Finding {
	var out []Finding
	live := map[string]*Report{}
	for _, r := range ofMembers(t, reports) {
		live[r.Member] = r
	}
	open := make([][]string, t.Slots)
	for _, id := range slices.Sorted(maps.Keys(live)) {
		r := live[id]
		for _, n := range r.openOf(t).Slots() {
			open[n] = append(open[n], id)
			if w := r.Waiting[n]; w > StalledAfter {
				out = append(out, Finding{Slot: n, What: Stalled, Epoch: t.At(n).Epoch, Members: id, Waiting: w})
			}
		}
		out = append(out, r.compare(t, census)...)
	}
	silent := map[string]bool{}
	for i, members := range open {
		n := slot.Slot(i)
		run := t.At(n)
		switch _, reported := live[run.Owner]; {
		case run.Owner != "" && !reported:
			if !silent[run.Owner] {
				out = append(out, Finding{Slot: n, What: Silent, Members: run.Owner})
			}
			silent[run.Owner] = true
		case len(members) == 0:
			out = append(out, Finding{Slot: n, What: Unowned, Epoch: run.Epoch, Members: run.Owner})
		case len(members) > 1:
			out = append(out, Finding{Slot: n, What: Doubled, Epoch: run.Epoch, Members: strings.Join(members, " ")})
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(a.Slot, b.Slot) })
	return out
}

// compare returns the differences between what a member holds and what exists.
func (r *Report) compare(t *table.Table, census Digests) []Finding {
	var out []Finding
	fold := max(1, r.Fold)
	type figure struct {
		last  slot.Slot
		epoch uint64
	}
	open, figures := r.openOf(t), map[slot.Slot]figure{}
	for _, n := range open.Slots() {
		f := figures[firstOf(n, fold)]
		figures[firstOf(n, fold)] = figure{last: n, epoch: max(f.epoch, t.At(n).Epoch)}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(census), byName) {
		exist := map[slot.Slot]sharding.Digest{}
		for n, d := range census[kind] {
			if open.Has(n) {
				exist[n] = d
			}
		}
		exist = Fold(exist, fold)
		held, reads := r.Digests[kind]
		for _, n := range slices.Sorted(maps.Keys(figures)) {
			f := Finding{Slot: n, What: Differs, Epoch: figures[n].epoch, Members: r.Member, Kind: kind, Exist: exist[n],
				Held: held[n]}
			if f.Exist == f.Held {
				continue
			}
			if !reads {
				f.What = Unread
			}
			if fold > 1 {
				f.Last = figures[n].last
			}
			out = append(out, f)
		}
	}
	return out
}

// openOf returns the slots that the member has open, without slots that the table does not have.
func (r *Report) openOf(t *table.Table) *slot.Set {
	open := r.Open.Intersect(t.Slots.All())
	return &open
}

// ofMembers returns the reports of members in the table.
func ofMembers(t *table.Table, reports []*Report) []*Report {
	var out []*Report
	for _, r := range reports {
		if _, ok := t.Member(r.Member); ok {
			out = append(out, r)
		}
	}
	return out
}

func byName(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }
