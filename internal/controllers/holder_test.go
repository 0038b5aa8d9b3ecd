package controllers

import (
	"testing"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// keeperState is a Keeper that notes which slots are open.
type keeperState struct {
	NoKeeper
	open slot.Set
}

func (k *keeperState) Open(set slot.Set, _ uint64) { k.open = k.open.Union(set) }

func (k *keeperState) Drain(set slot.Set, _ func(slot.Slot, []table.Gone)) {
	k.open = k.open.Minus(set)
}

// The gate may say that a slot is idle when the slot has been opened again, or shut.
func TestALateIdleDrainsNothing(t *testing.T) {
	keeper := &keeperState{}
	calls := keeperCalls{keeper: keeper}
	set := slot.SetOf(slot.Range{First: 3, Last: 3})
	calls.open(set, 1)
	calls.drain(set)
	calls.open(set, 1)
	calls.idle(3, nil)
	if !keeper.open.Has(3) {
		t.Error("the keeper does not work on slot 3, which is open")
	}
	calls.drain(set)
	calls.idle(3, nil)
	if keeper.open.Has(3) {
		t.Error("the keeper works on slot 3, which is being drained")
	}
}
