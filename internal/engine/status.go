package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Status implements rota.Status.
type Status struct {
	ID            string
	Epoch         uint64
	Members       int
	TableGone     bool
	Waiting       string
	Owned, Open   slot.Set
	Coming, Going slot.Set
	Unowned       slot.Set
	Duties        []DutyStatus
	InFlight      int
	Traffic       map[schema.GroupKind]feed.Traffic
	Ignored       map[schema.GroupKind]bool
	Refused       []feed.Failure
	Findings      []coverage.Finding
	Gaps          []group.Gap
	Scrubs        uint64
	Stuck         []gate.Flight
	Failing       []Failing
	Health        coverage.Health
}

const stuckAfter = 10 * time.Second

// Status implements rota.Rota.Status.
func (r *Engine) Status() Status {
	t, id := r.tableOf(), r.ID()
	s := Status{
		ID: id, Epoch: t.Epoch, Members: len(t.Members), Open: r.hashes(r.gate.Working()),
		Owned: r.hashes(t.Owned(id)), Coming: r.hashes(t.Coming(id)), Duties: r.dutyStatus(t),
		InFlight: r.inFlight(), Stuck: r.stuck(stuckAfter),
		Traffic: r.share.Traffic(), Ignored: r.share.Ignored(), Failing: r.Failing(), Refused: r.share.Failing(),
		Health: r.controllers.Health(),
	}
	if i := r.present.Load(); i != nil {
		s.Waiting = i.Waiting()
	}
	s.Findings, s.Scrubs, _ = r.reporter.Findings()
	s.Gaps = r.reporter.Gaps()
	if id == "" {
		s.Owned, s.Coming = slot.Set{}, slot.Set{}
	}
	if s.TableGone = r.state.Gone(); s.TableGone {
		s.Members, s.Owned, s.Coming = 0, slot.Set{}, slot.Set{}
		s.Unowned = r.cfg.Slots.All()
		return s
	}
	for _, run := range t.Runs {
		switch {
		case t.IsDuty(run.Slots.First):
		case run.Owner == "":
			s.Unowned.AddRange(run.Slots)
		case run.Owner == id && run.Next != "":
			s.Going.AddRange(run.Slots)
		}
	}
	return s
}

// DutyStatus implements rota.DutyStatus.
type DutyStatus struct {
	Name        string
	Owner, Next string
	Declared    bool
	Running     bool
	Restarts    int
}

// dutyStatus returns the status of all duties, sorted by name.
func (r *Engine) dutyStatus(t *table.Table) []DutyStatus {
	by := map[string]DutyStatus{}
	for _, run := range t.Runs {
		if name := t.Duty(run.Slots.First); name != "" && !r.state.Gone() {
			by[name] = DutyStatus{Name: name, Owner: run.Owner, Next: run.Next}
		}
	}
	for _, d := range r.duties.All() {
		s := by[d.Name()]
		s.Name, s.Declared = d.Name(), true
		s.Running, s.Restarts = d.Runs()
		if table.OwnDuty(s.Name) {
			s.Running = r.doesOwn(s.Name)
		}
		by[s.Name] = s
	}
	return slices.SortedFunc(maps.Values(by), func(a, b DutyStatus) int { return strings.Compare(a.Name, b.Name) })
}
