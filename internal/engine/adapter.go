package engine

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
)

// Adapt implements rota.Rota.Adapt.
func (r *Engine) Adapt(access adapter.Access) adapter.Parts {
	access.Require()
	return r.adapted
}

// adaptable returns the parts for Adapt.
func (r *Engine) adaptable() adapter.Parts {
	return adapter.Parts{
		Share: r.share, Gate: r.gate, Slots: r.cfg.Slots, Key: r.cfg.Key, Election: r.opts.electionLease(),
		NoStockReplicas: r.opts.NoStockReplicas, Solo: r.opts.Solo, Table: r.state.Table,
		SettingUp: r.setup.goesOn, FinishSetup: r.setup.atEnd,
		Late:     func() time.Duration { return r.clock.Late() },
		Ending:   func() { r.ending.Store(true) },
		Reported: func() bool { _, bytes, _ := r.reporter.Published(); return bytes > 0 },
		NewController: func(
			name string, kind schema.GroupKind, enqueue controllers.Enqueue,
		) (*controllers.Controller, error) {
			return r.newController(name, kind, nil, enqueue)
		},
		Observe: r.controllers.Observe,
		LogTo: func(l logr.Logger) {
			own, unset := r.opts.Logger.GetSink().(*logSink)
			if sink := l.WithCallDepth(1).GetSink(); unset && sink != nil {
				own.program.Store(&sink)
			}
		},
		Keep: func(k controllers.Keeper) {
			r.keeper = k
			r.cfg.Outlives = true // workers rely on their takes even if the dispatcher dies
		},
	}
}
