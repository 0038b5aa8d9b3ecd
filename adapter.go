package rota

import (
	"context"

	"github.com/rota-dev/rota/internal/adapter"
)

func init() {
	adapter.Of = func(r any) adapter.Parts {
		rota := r.(*Rota)
		return adapter.Parts{
			Share: rota.share, Gate: rota.gate, Late: rota.clock.Late, Slots: rota.cfg.Slots, Key: rota.cfg.Key,
			Election: rota.opts.electionLease(), Solo: rota.opts.Solo,
			Ending:    func() { rota.ending.Store(true) },
			SettingUp: rota.settingUp,
			FinishSetup: func(f func(context.Context) error) {
				rota.mu.Lock()
				defer rota.mu.Unlock()
				rota.finishSetup = append(rota.finishSetup, f)
			},
			Reported: func() bool { _, bytes, _ := rota.published.get(); return bytes > 0 },
		}
	}
	adapter.SetChoose = func(controller any, f adapter.Choose) {
		c := controller.(*Controller)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.choose = f
	}
	adapter.Keep = func(r any, k adapter.Keeper) {
		rota := r.(*Rota)
		rota.keeper = k
		rota.cfg.Outlives = true // workers count on their takes, whatever happens to the dispatcher
	}
}
