package view

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

const (
	// maxHottest limits the hottest slots and objects. Each must keep at least leastHot workers busy.
	maxHottest = 5
	leastHot   = 0.05
)

// Values of Rota.Balance.
const (
	BalanceNumber = coverage.BalanceNumber
	BalanceLoad   = coverage.BalanceLoad
	BalanceMixed  = "mixed"
)

// balance returns what members share according to their reports; older builds share by number.
func (r *Rota) balance() string {
	with, without := false, false
	for _, report := range r.Reports {
		if report.Setup[coverage.SettingBalance] == coverage.BalanceLoad {
			with = true
		} else {
			without = true
		}
	}
	switch {
	case with && without:
		return BalanceMixed
	case with:
		return BalanceLoad
	}
	return BalanceNumber
}

// hottest returns the slots that keep the most workers busy, from the reports of their owners.
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

// hottestObjects returns the objects that keep the most workers busy, from the reports of their slots' owners.
func (r *Rota) hottestObjects() []HotObject {
	out := []HotObject{}
	for id, report := range r.Reports {
		for _, h := range report.Hottest {
			if h.Workers >= leastHot && r.Table.At(h.Slot).Owner == id {
				out = append(out, HotObject{Kind: h.Kind.String(), Namespace: h.Object.Namespace, Name: h.Object.Name,
					Controller: h.Controller, Slot: int(h.Slot), Member: id, Workers: h.Workers})
			}
		}
	}
	slices.SortFunc(out, func(a, b HotObject) int {
		return cmp.Or(cmp.Compare(b.Workers, a.Workers), cmp.Compare(a.Object(), b.Object()))
	})
	return out[:min(len(out), maxHottest)]
}

// hotOf returns how many workers an object keeps busy according to its owner's report, or 0 if it is not among the
// hottest.
func (r *Rota) hotOf(kind, namespace, name string) (workers float64) {
	for id, report := range r.Reports {
		for _, h := range report.Hottest {
			same := h.Kind.String() == kind && h.Object.Namespace == namespace && h.Object.Name == name
			if same && r.Table.At(h.Slot).Owner == id {
				workers += h.Workers
			}
		}
	}
	return workers
}

// loadOf returns how many workers a slot keeps busy according to its owner's report, or nil if it has no figure for
// this slot alone.
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
