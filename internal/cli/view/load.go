package view

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/slot"
)

const (
	// maxHottest is how many slots are called hottest, leastHot how many workers each must keep busy.
	maxHottest = 5
	leastHot   = 0.05
)

// hottest returns the slots that keep most workers busy, of those that their reporters own.
func (r *Rota) hottest() []Hot {
	out := []Hot{}
	for id, report := range r.Reports {
		for _, l := range report.Loads {
			if l.Workers >= leastHot && r.Table.At(l.Slots.First).Owner == id {
				out = append(out, Hot{int(l.Slots.First), int(l.Slots.Last), id, l.Workers})
			}
		}
	}
	slices.SortFunc(out, func(a, b Hot) int { return cmp.Or(cmp.Compare(b.Workers, a.Workers), a.First-b.First) })
	return out[:min(len(out), maxHottest)]
}

// loadOf returns how many workers a slot keeps busy, by its owner's report; nil: that does not say, or only of several
// slots together.
func (r *Rota) loadOf(s slot.Slot) *float64 {
	report := r.Reports[r.Table.At(s).Owner]
	if report == nil || report.Loads == nil {
		return nil
	}
	workers := 0.0
	for _, l := range report.Loads {
		switch {
		case s < l.Slots.First || s > l.Slots.Last:
		case l.Slots.First != l.Slots.Last:
			return nil
		default:
			workers = l.Workers
		}
	}
	return &workers
}
