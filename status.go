package rota

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/engine"
	"github.com/rota-dev/rota/internal/gate"
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
	Refused = feed.Failure
	// Traffic is what the API server sent of a kind.
	Traffic = feed.Traffic
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
	Traffic map[schema.GroupKind]feed.Traffic
	// Ignored says, by kind, whether the API server ignored the shard selector in its last answer with objects. It is
	// filled only with DeliveryShardSelector, and only for kinds with traffic.
	Ignored map[schema.GroupKind]bool
	// Refused are the lists and watches of sharded kinds that the API server refuses, with the error and since when.
	Refused []feed.Failure
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

// Status returns a snapshot.
func (r *Rota) Status() Status { return statusOf(r.engine.Status()) }

func statusOf(s engine.Status) Status {
	out := Status{
		ID: s.ID, Epoch: s.Epoch, Members: s.Members, TableGone: s.TableGone, Waiting: s.Waiting, Owned: s.Owned,
		Open: s.Open, Coming: s.Coming, Going: s.Going, Unowned: s.Unowned, InFlight: s.InFlight, Traffic: s.Traffic,
		Ignored: s.Ignored, Refused: s.Refused, Findings: s.Findings, Gaps: s.Gaps, Scrubs: s.Scrubs, Stuck: s.Stuck,
		Failing: failing(s.Failing), Health: s.Health,
	}
	for _, d := range s.Duties {
		out.Duties = append(out.Duties, DutyStatus(d))
	}
	return out
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

// Failing is a controller whose reconciles all fail on this member, or a duty that keeps failing there.
type Failing struct {
	// Controller is empty for a duty, and Duty for a controller.
	Controller, Duty string
	// For is the time since the first failure after the last success.
	For time.Duration
	// Reconciles is how many failed since then; of a duty, how many runs.
	Reconciles int
	// Never says that none has succeeded since this process started.
	Never bool
	// Err is the last error; nil where the queue was only told to try again.
	Err error
}

// String returns a sentence for logs and events.
func (f Failing) String() string { return engine.Failing(f).String() }

// Failing returns the controllers whose reconciles have all failed on this member for at least a minute. If none has
// ever succeeded since the start, three objects must have failed, else half of the member's objects; all objects
// suffice. The member keeps its slots and stays ready: whatever is broken may be broken for all members.
//
// A duty that this member has is returned if it has failed at least three times in a row, for at least a minute, and
// has not been running for 5 minutes now.
func (r *Rota) Failing() []Failing { return failing(r.engine.Failing()) }

func failing(all []engine.Failing) (out []Failing) {
	for _, f := range all {
		out = append(out, Failing(f))
	}
	return out
}
