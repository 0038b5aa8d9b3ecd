package rota

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// What a Status is made of.
type (
	// Finding is something that is wrong with what members hold (rule R14).
	Finding = coverage.Finding
	// Health is what the reconciles of a member come to.
	Health = coverage.Health
	// KeyHealth is what those of one object come to.
	KeyHealth = coverage.KeyHealth
	// Refused is a kind that the API server does not let this member list or watch.
	Refused = delivery.Failure
	// Traffic is what the API server sent of a kind.
	Traffic = delivery.Traffic
	// Flight is a reconcile, a duty, or a function of Go that goes on.
	Flight = gate.Flight
)

// Status is what a member knows of its rota.
type Status struct {
	// ID is the member's; empty before Run.
	ID string
	// Epoch is the last table's, Members the number of members in it. 0 before a table was seen.
	Epoch   uint64
	Members int
	// TableGone says that there is no table: it was deleted, or no member has created one yet. Then no slot has an owner,
	// and there are no members.
	TableGone bool
	// Waiting says what all work of this member waits for: another one holds the Lease of Options.LeaderElectionID. Empty:
	// for nothing.
	Waiting string
	// Owned are the slots of this member by the last table, Open those whose keys it admits.
	Owned, Open slot.Set
	// Coming are slots that move to this member, Going those that move away.
	Coming, Going slot.Set
	// Unowned slots belong to nobody.
	Unowned slot.Set
	// Duties are the duties of the rota by the last table, and those that this member has declared, by name.
	Duties []DutyStatus
	// InFlight is how many reconciles, duties, writes of unknown outcome, and functions of Go that have to end, are in
	// flight.
	InFlight int
	// Traffic is, by sharded kind, the number of objects that came from the API server since this process started.
	Traffic map[schema.GroupKind]delivery.Traffic
	// Ignored says, by kind, whether the API server ignored the shard selector in its last answer with objects. It is
	// filled only with DeliveryShardSelector, and only for kinds with traffic.
	Ignored map[schema.GroupKind]bool
	// Refused are the lists and watches of sharded kinds that the API server refuses, with the error and since when.
	Refused []delivery.Failure
	// Findings are what was wrong when this member last compared what members hold with what there is; Scrubs is how often
	// it has. Only the member with the scrub duty does (rule R14).
	Findings []coverage.Finding
	// Gaps are controllers of Options.Group's program that are in no group or in several. Only the member with the scrub
	// duty knows.
	Gaps   []group.Gap
	Scrubs uint64
	// Stuck are the reconciles that have been in flight for more than 10 s, and the duties and functions of Go that have
	// not returned for that long after their context ended, longest first.
	Stuck []gate.Flight
	// Failing are the controllers whose reconciles all fail on this member, and the duties that keep failing.
	Failing []Failing
	// Health names the objects of this member whose reconciles have been in flight for a minute or more, or have failed
	// three times or more in a row: the five worst of each sort, with the last error in 200 bytes. Members report it, so
	// that `rota who`, `rota check` and others show it. Another member that gets an object's slot begins to count anew.
	Health coverage.Health
}

const stuckAfter = 10 * time.Second

// Status returns a snapshot.
func (r *Rota) Status() Status {
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

// DutyStatus is what a member knows of a duty.
type DutyStatus struct {
	Name string
	// Owner is the member that has it by the table, and Next the one that it moves to; "": nobody.
	Owner, Next string
	// Declared says that this member can do it.
	Declared bool
	// Running says that its function runs here now. It may be about to end.
	Running bool
	// Restarts is how often it was started again on this member after it had failed.
	Restarts int
}

// dutyStatus returns the duties by name.
func (r *Rota) dutyStatus(t *table.Table) []DutyStatus {
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
