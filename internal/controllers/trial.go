package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/internal/work"
)

// step holds the results of a controller's reconciles in one step of a canary. Its zero value is ready to use.
type step struct {
	of table.Canary
	trial.Objects[types.NamespacedName]
}

// at returns the results for the current step of a canary and drops results of another step. It returns nil if no
// canary runs. A step includes its handovers, so slots may still be moving.
func (s *step) at(canary *table.Canary) *step {
	if !s.of.SameStep(canary) {
		*s = step{of: *canary}
	}
	if !canary.Runs() {
		return nil
	}
	return s
}

// Trial returns this member's report on the current step of a canary, or nil if none runs or the step has not begun.
func (s *Set) Trial() *coverage.Trial {
	canary := s.env.Canary()
	if !canary.Runs() || canary.Began == 0 {
		return nil
	}
	out := &coverage.Trial{Build: canary.Build, Began: canary.Began, Step: canary.Step}
	now := s.env.Wall()
	for _, c := range s.All() {
		one := trial.Side{Objects: int64(c.env.Share.Size(c.Kind)), Failing: int64(len(c.unwell(now)))}
		c.Work.With(func(k *keys) {
			one.Tally = c.trial.at(canary).Tally
			k.Streaks(func(types.NamespacedName, work.Streak) { one.Ailing++ })
		})
		out.Side = out.Plus(one)
	}
	return out
}
