package demo

import (
	"fmt"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// Report is what a run showed. Its JSON form is the output of `rota-demo --output json`. What could not be measured
// for want of an audit log is null.
type Report struct {
	Objects int `json:"objects"`
	Members int `json:"members"`
	Slots   int `json:"slots"`
	// Rate is the number of changes per second of the load.
	Rate float64 `json:"rate"`
	// Delivery is how the objects of their slots reached the members.
	Delivery sharding.Mode `json:"delivery"`
	// LabelWritesBefore are the writes of nothing but the labels by which objects are delivered, before the undisturbed
	// time.
	LabelWritesBefore *int `json:"label_writes_before"`
	// Reconciled are the Websites whose status shows their latest generation, after the load has ended.
	Reconciled int `json:"reconciled"`
	// Overlaps are pairs of reconciles of one namespace/name by two members that overlap in time.
	Overlaps int `json:"overlaps"`
	// Children are the ConfigMaps, Deployments and Services that the Websites have to have, ChildrenRight those that
	// are in their desired state, after the load has ended. ChildrenStray are those that belong to no Website.
	Children      int `json:"children"`
	ChildrenRight int `json:"children_right"`
	ChildrenStray int `json:"children_stray"`
	// ForeignWrites are accepted writes to a Website or its children by a member that did not own its slot.
	ForeignWrites *int `json:"foreign_writes"`
	UnownedAtEnd  int  `json:"unowned_at_end"`
	// DeletionsMissed are pages left behind by deletions, except in slots that were a killed replica's.
	DeletionsMissed int `json:"deletions_missed"`
	// TakenOverSeconds is how long after a kill the last of the killed replica's slots had a new owner that works on it,
	// at most; TakeOverBoundSeconds is how long that may take (docs/guarantees.md). Both are 0 where none was killed.
	TakenOverSeconds     float64 `json:"taken_over_seconds"`
	TakeOverBoundSeconds float64 `json:"take_over_bound_seconds"`
	// Duties is how many duties the operator has, DutyRuns how often one was begun. DutyOverlaps are pairs of runs of one
	// duty by two members at the same time. DutiesUndone are those that nobody has after the load has ended.
	Duties       int `json:"duties"`
	DutyRuns     int `json:"duty_runs"`
	DutyOverlaps int `json:"duty_overlaps"`
	DutiesUndone int `json:"duties_undone"`
	// DutyMoves is how often a duty was handed over while members joined, left or were replaced. DutyGap is for how long
	// nobody did it then.
	DutyMoves int            `json:"duty_moves"`
	DutyGap   verdict.Spread `json:"duty_gap_ms"`
	// DutyTakenOverSeconds is how long after the kill the last of the killed replica's duties was done again; 0: it had
	// none.
	DutyTakenOverSeconds float64 `json:"duty_taken_over_seconds"`
	Phases               []Phase `json:"phases"`
	// Ended says how processes ended that nobody had told to. The story was not told to its end then.
	Ended []string `json:"ended,omitempty"`
	// Migrated says that this is the report of Options.Migrate. What it leaves out is 0. SidesOverlap are the reconciles
	// that began while the other side, stock replicas or members, reconciled something, be it another object.
	Migrated     bool `json:"migrated,omitempty"`
	SidesOverlap int  `json:"sides_overlap,omitempty"`
	// Scaling is what an autoscaler did, with Options.Autoscale: from Fewest replicas to Peak, of at most Most. Turns is
	// how often it changed its direction, the first way up included.
	Scaling []Scaled `json:"scaling,omitempty"`
	// Trials are what became of canaries, with Options.Canary.
	Trials []Trial `json:"trials,omitempty"`
	Fewest int32   `json:"fewest,omitempty"`
	Most   int32   `json:"most,omitempty"`
	Peak   int32   `json:"peak,omitempty"`
	Turns  int     `json:"turns,omitempty"`
}

// Phase is what one phase showed.
type Phase struct {
	Name string `json:"name"`
	// MovedSlots are the slots that changed their owner, MovesPerSlot how often on average.
	MovedSlots   int     `json:"moved_slots"`
	MovesPerSlot float64 `json:"moves_per_slot"`
	// MovedObjects are the Websites in those slots and their children, counted once per move.
	MovedObjects int `json:"moved_objects"`
	// ObjectWrites are writes made only in order to move objects.
	ObjectWrites *int `json:"object_writes"`
	// LabelWrites are the writes of nothing but the label that follows from an object's key: one in the life of an
	// object that the load created.
	LabelWrites *int `json:"label_writes"`
	TableWrites int  `json:"table_writes"`
	// ListedObjects are the Websites and children in the lists that members made: those of the phase's start that the
	// request selects. Those of labellers, which look through the metadata of all objects of a kind when they begin,
	// are among them.
	ListedObjects *int `json:"listed_objects"`
	// ReceivedObjects are the Websites and children that came to members, in lists and in events, by their own count.
	// ForeignObjects are those among them that they had not asked for.
	ReceivedObjects int            `json:"received_objects"`
	ForeignObjects  int            `json:"foreign_objects"`
	Stall           verdict.Spread `json:"stall_ms"`
	// MachineBusy is the part of the time in which the machine's processors worked, from 0 to 1, for whomever. A stall on
	// a machine that is busy is mostly a wait for a processor. null where the system does not tell.
	MachineBusy *float64 `json:"machine_busy"`
	Seconds     float64  `json:"seconds"`
	// GapSeconds is the longest time without a reconcile; only with Options.Migrate.
	GapSeconds float64 `json:"gap_seconds,omitempty"`

	canaries, transfers int
}

// verdicts are in the order of the text. What could not be judged is not among them.
func (r *Report) verdicts() []verdict.Verdict {
	all := append(verdict.Ended(r.Ended),
		verdict.Of(r.Overlaps == 0, "no Website was ever reconciled by two replicas at once",
			verdict.Count(r.Overlaps, "time a Website was", "times a Website was")+" reconciled by two replicas at once"))
	if n := r.ForeignWrites; n != nil {
		all = append(all, verdict.Of(*n == 0,
			"no replica wrote to a Website that was not its own, or to a child of one (by the API server's audit log)",
			verdict.Count(*n, "write", "writes")+" by a replica that did not own the Website"))
	}
	if r.Migrated {
		return append(all, verdict.Of(r.SidesOverlap == 0, "no member reconciled anything while a stock replica did",
			verdict.Count(r.SidesOverlap, "reconcile", "reconciles")+" began while the other side worked"),
			r.upToDate(), r.children())
	}
	all = append(all, verdict.Of(r.UnownedAtEnd == 0, "every slot has an owner",
		verdict.Count(r.UnownedAtEnd, "slot has", "slots have")+" no owner"))
	if r.Most > 0 {
		all = append(all, r.scalingVerdicts()...)
	}
	all = append(all, r.canaryVerdicts()...)
	all = append(all, r.dutyVerdicts()...)
	if took, bound := r.TakenOverSeconds, r.TakeOverBoundSeconds; bound > 0 {
		all = append(all, verdict.Of(took <= bound,
			fmt.Sprintf("the killed replica's slots had new owners at work after %.1f s, of at most %.1f s", took, bound),
			fmt.Sprintf("the killed replica's slots had new owners at work only after %.1f s; the bound is %.1f s",
				took, bound)))
	}
	return append(all, r.upToDate(), r.children(), verdict.Of(r.DeletionsMissed == 0,
		"no deletion was missed while slots moved",
		verdict.Count(r.DeletionsMissed, "page was", "pages were")+" left behind by a deletion that nobody noticed"))
}

func (r *Report) upToDate() verdict.Verdict {
	return verdict.Of(r.Reconciled == r.Objects, fmt.Sprintf("all %d Websites are up to date", r.Objects),
		fmt.Sprintf("%d of %d Websites are not up to date", r.Objects-r.Reconciled, r.Objects))
}

func (r *Report) children() verdict.Verdict {
	return verdict.Of(r.ChildrenRight == r.Children && r.ChildrenStray == 0,
		fmt.Sprintf("all their %d children are there, in their desired state", r.Children),
		fmt.Sprintf("%d of %d children are in their desired state, and %d belong to no Website",
			r.ChildrenRight, r.Children, r.ChildrenStray))
}

// Failures lists what must not have happened, in words.
func (r *Report) Failures() []string { return verdict.Failures(r.verdicts()) }
