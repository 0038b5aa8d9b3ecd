package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
)

// Adapt is for package ctrlrt and for dispatchers: with the parts of a rota that open slots, a program could work on
// objects of other members. It panics unless a package of Rota has granted access.
func (r *Rota) Adapt(access adapter.Access) adapter.Parts {
	access.Require()
	return adapter.Parts{
		Share: r.share, Gate: r.gate, Late: r.clock.Late, Slots: r.cfg.Slots, Key: r.cfg.Key,
		Election: r.opts.electionLease(), Solo: r.opts.Solo, Table: r.state.Table,
		Ending:    func() { r.ending.Store(true) },
		SettingUp: r.settingUp,
		FinishSetup: func(f func(context.Context) error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.finishSetup = append(r.finishSetup, f)
		},
		Reported: func() bool { _, bytes, _ := r.reporter.Published(); return bytes > 0 },
		NewController: func(
			name string, kind schema.GroupKind, enqueue controllers.Enqueue,
		) (*controllers.Controller, error) {
			return r.newController(name, kind, nil, enqueue)
		},
		Keep: func(k controllers.Keeper) {
			r.keeper = k
			r.cfg.Outlives = true // workers count on their takes, whatever happens to the dispatcher
		},
	}
}
