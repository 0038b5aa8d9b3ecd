package report

import (
	"sync"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
)

// Trials follows the steps of a canary. Its zero value has seen none. Its method may be called concurrently.
type Trials struct {
	mu    sync.Mutex
	of    table.Canary
	begun trial.Tally
}

// Look returns what came of this member's reconciles since the first Look that showed the canary's present step; nil
// without a canary that has begun. now is what came of all of them.
func (t *Trials) Look(canary *table.Canary, now trial.Side) *coverage.Trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !canary.On() || canary.State != table.CanaryRuns || canary.Began == 0 {
		t.of = table.Canary{}
		return nil
	}
	if !canary.Same(&t.of) {
		t.of, t.begun = *canary, now.Tally
	}
	now.Tally = now.Minus(t.begun)
	return &coverage.Trial{Build: canary.Build, Began: canary.Began, Step: canary.Step, Side: now}
}
