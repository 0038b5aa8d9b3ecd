package controllers

import (
	"testing"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// What others may have written meanwhile, the objects of slots that were handed over are not spared.
func TestSlotsAreNotHandedOverIfTheyAreLoadedAnew(t *testing.T) {
	share := delivery.New(delivery.Options{Slots: slot.DefaultCount, Key: slot.KeyName, Mode: sharding.Filter})
	objects := NewHolder(HolderEnv{Controllers: NewSet(Env{Share: share}), Keeper: NoKeeper{}})
	load := member.Load{Slots: slot.SetOf(slot.Range{First: 1, Last: 2}), Cause: table.CauseHanded}
	objects.Expect(load, false)
	if objects.handed != load.Slots {
		t.Errorf("handed over: %v", objects.handed)
	}
	load.Cause = table.CauseExpelled
	if _, err := objects.Load(t.Context(), load); err != nil || !objects.handed.Empty() {
		t.Errorf("handed over: %v, error %v", objects.handed, err)
	}
}
