package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/internal/work"
)

// step is what came of a controller's reconciles in one step of a canary. Its zero value has none.
type step struct {
	of table.Canary
	trial.Objects[types.NamespacedName]
}

// at returns what came of reconciles in the present step of a canary, and forgets that of another one; nil if no canary
// runs. Slots may still be on their way: a step's handovers are part of it.
func (s *step) at(canary *table.Canary) *step {
	if !s.of.SameStep(canary) {
		*s = step{of: *canary}
	}
	if !canary.Runs() {
		return nil
	}
	return s
}

// Trial returns what this member reports of the present step of a canary; nil if none runs, or before the step begins.
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
			k.Ailments(func(types.NamespacedName, work.Ailment) { one.Ailing++ })
		})
		out.Side = out.Plus(one)
	}
	return out
}
