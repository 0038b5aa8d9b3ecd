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

// Parts of a Status.
type (
	// Finding is a fault in the slots or objects that members hold (rule R14).
	Finding = coverage.Finding
	// Health lists the objects of a member whose reconciles hang or fail.
	Health = coverage.Health
	// KeyHealth is one object in a Health.
	KeyHealth = coverage.KeyHealth
	// Refused is a kind that the API server does not let this member list or watch.
	Refused = feed.Failure
	// Traffic counts the objects of a kind that the API server sent.
	Traffic = feed.Traffic
	// Flight is a running reconcile, duty, or function of Go.
	Flight = gate.Flight
)

// Status is a member's view of its rota.
type Status struct {
	// ID is the member's identity. It is empty before Run.
	ID string
	// Epoch is the epoch of the last table, and Members the number of its members. Both are 0 before a table was seen.
	Epoch   uint64
	Members int
	// TableGone is true if there is no table, because it was deleted or no member has created one yet. Then no slot has
	// an owner, and there are no members.
	TableGone bool
	// Waiting is a sentence that explains why this member does not work while the rota does not hold the Lease of
	// Options.LeaderElectionID, and names the holder. Otherwise it is empty.
	Waiting string
	// Owned are this member's slots in the last table, and Open the slots that it works on.
	Owned, Open slot.Set
	// Coming are slots that move to this member, and Going slots that move away.
	Coming, Going slot.Set
	// Unowned are the slots without an owner.
	Unowned slot.Set
	// Duties are the duties in the last table and the duties that this member has declared, sorted by name.
	Duties []DutyStatus
	// InFlight is the number of reconciles, duties, writes of unknown outcome, and functions of Go that must end, which
	// are in flight.
	InFlight int
	// Traffic counts, by sharded kind, the objects that the API server sent since this process started.
	Traffic map[schema.GroupKind]feed.Traffic
	// Ignored is true for kinds for which the API server ignored the shard selector in its last answer with objects. It
	// has entries only with DeliveryShardSelector, and only for kinds with traffic.
	Ignored map[schema.GroupKind]bool
	// Refused are the lists and watches of sharded kinds that the API server refuses, each with its error and start.
	Refused []feed.Failure
	// Findings are the faults that this member's last scrub found, and Scrubs is the number of its scrubs. Only the member
	// with the scrub duty has them (rule R14).
	Findings []coverage.Finding
	// Gaps are controllers of Options.Group's program that are in no group or in several. Only the member with the scrub
	// duty has them.
	Gaps   []group.Gap
	Scrubs uint64
	// Stuck are the reconciles that have been in flight for more than 10 s, and the duties and functions of Go that have
	// not returned within 10 s of the end of their context, longest first.
	Stuck []gate.Flight
	// Failing are the controllers whose reconciles all fail on this member, and the duties that keep failing.
	Failing []Failing
	// Health lists the objects of this member whose reconciles have been in flight for a minute or more, or have failed
	// three times or more in a row: the five worst of each sort, each with its last error, cut off at 200 bytes. Members
	// report it, and `rota who` and `rota check` show it. Counts start again when an object's slot moves.
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

// DutyStatus is a member's view of a duty.
type DutyStatus struct {
	Name string
	// Owner is the member that has the duty in the table, and Next the member that it moves to. Either may be empty.
	Owner, Next string
	// Declared is true if this member has declared the duty.
	Declared bool
	// Running is true while the duty's function runs on this member, even if it is about to end.
	Running bool
	// Restarts is the number of times that the duty was started again on this member after it had failed.
	Restarts int
}

// Failing is a controller whose reconciles all fail on this member, or a duty that keeps failing there.
type Failing struct {
	// Controller is empty for a duty, and Duty is empty for a controller.
	Controller, Duty string
	// For is the time since the first failure after the last success.
	For time.Duration
	// Reconciles is the number of reconciles, or of runs of the duty, that have failed since then.
	Reconciles int
	// Never is true if none has succeeded since this process started.
	Never bool
	// Err is the last error. It is nil if the reconcile only requeued the object.
	Err error
}

// String returns a sentence for logs and events.
func (f Failing) String() string { return engine.Failing(f).String() }

// Failing returns the controllers whose reconciles have all failed on this member for at least a minute. If none has
// succeeded since the start, that takes failures of three objects, otherwise of half of the member's objects, and never
// of more objects than it has. The member keeps its slots and stays ready, since all members may have the same problem.
//
// It also returns this member's duties that have failed at least three times in a row, for at least a minute, and whose
// current run is shorter than 5 minutes.
func (r *Rota) Failing() []Failing { return failing(r.engine.Failing()) }

func failing(all []engine.Failing) (out []Failing) {
	for _, f := range all {
		out = append(out, Failing(f))
	}
	return out
}
