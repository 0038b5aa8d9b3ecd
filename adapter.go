package rota

import "github.com/rota-dev/rota/internal/adapter"

func init() {
	adapter.Of = func(r any) adapter.Parts {
		rota := r.(*Rota)
		return adapter.Parts{
			Share: rota.share, Gate: rota.gate, Late: rota.clock.late, Slots: rota.cfg.Slots, Key: rota.cfg.Key,
		}
	}
	adapter.Keep = func(r any, k adapter.Keeper) { r.(*Rota).keeper = k }
}
