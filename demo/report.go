package demo

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Report is what a run showed. Its JSON form is the output of `rota-demo --output json`. What could not be measured
// for want of an audit log is null.
type Report struct {
	rig.Settled
	Members int `json:"members"`
	Slots   int `json:"slots"`
	// Rate is the number of changes per second of the load.
	Rate float64 `json:"rate"`
	// Delivery is how the objects of their slots reached the members.
	Delivery sharding.Mode `json:"delivery"`
	// LabelWritesBefore counts the members' writes, before the baseline period, that changed only delivery labels.
	LabelWritesBefore *int `json:"label_writes_before"`
	// Overlaps are pairs of reconciles of one namespace/name by two replicas that overlap in time.
	Overlaps int `json:"overlaps"`
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
	// duty by two members at the same time. DutiesUndone are those that no member has after the load has ended.
	Duties       int `json:"duties"`
	DutyRuns     int `json:"duty_runs"`
	DutyOverlaps int `json:"duty_overlaps"`
	DutiesUndone int `json:"duties_undone"`
	// DutyTakenOverSeconds is how long after the kill the last of the killed replica's duties was done again; 0: it had
	// none.
	DutyTakenOverSeconds float64 `json:"duty_taken_over_seconds"`
	Phases               []Phase `json:"phases"`
	// Migrated is true for Migration. What its report leaves out is 0. SidesOverlap are the reconciles that began while
	// the other side, stock replicas or members, reconciled something, be it another object.
	Migrated     bool `json:"migrated,omitempty"`
	SidesOverlap int  `json:"sides_overlap,omitempty"`
	// Story are the story's own verdicts.
	Story []judge.Claim `json:"story,omitempty"`
}

// Phase is what one phase showed. What could not be measured for want of an audit log is null.
type Phase struct {
	Name string `json:"name"`
	// MovedSlots are the slots that changed their owner, MovesPerSlot how often on average.
	MovedSlots   int     `json:"moved_slots"`
	MovesPerSlot float64 `json:"moves_per_slot"`
	// MovedObjects are the Websites in those slots and their children, counted once per move.
	MovedObjects int `json:"moved_objects"`
	// ObjectWrites are writes made only in order to move objects.
	ObjectWrites *int `json:"object_writes"`
	TableWrites  int  `json:"table_writes"`
	// ListedObjects counts the Websites and children in the lists that members made: the objects at the phase's start that
	// the request selects. It includes lists by labellers, which list the metadata of all objects of a kind when they
	// begin.
	ListedObjects *int `json:"listed_objects"`
	// Stall is how much longer than usual a change to a Website on the move waited for its reconcile.
	Stall   judge.Spread `json:"stall_ms"`
	Seconds float64      `json:"seconds"`
	// GapSeconds is the longest time without a reconcile; only in a migration.
	GapSeconds float64 `json:"gap_seconds,omitempty"`
}

func newPhase(p *judge.Phase, moved *judge.Moved, audited bool) Phase {
	out := Phase{
		Name: p.Name, MovedSlots: moved.Slots, MovesPerSlot: float64(moved.Transfers) / float64(max(moved.Slots, 1)),
		MovedObjects: moved.Objects, TableWrites: moved.TableWrites, Stall: judge.SpreadOf(moved.Waits),
		Seconds: (p.End - p.Start).Round(100 * time.Millisecond).Seconds(),
	}
	if audited {
		writes := len(moved.Writes)
		out.ObjectWrites, out.ListedObjects = &writes, &moved.Listed
	}
	return out
}

// verdicts are in the order of the text. What could not be judged is not among them.
func (r *Report) verdicts() []judge.Claim {
	zero := func(n int, yes, one, many string) judge.Claim {
		return judge.ClaimOf(n == 0, yes, judge.Count(n, one, many))
	}
	all := []judge.Claim{zero(r.Overlaps, "no Website was ever reconciled by two replicas at once",
		"time a Website was reconciled by two replicas at once", "times a Website was reconciled by two replicas at once")}
	if n := r.ForeignWrites; n != nil {
		all = append(all, zero(*n,
			"no replica wrote to a Website that was not its own, or to a child of one (by the API server's audit log)",
			"write by a replica that did not own the Website", "writes by a replica that did not own the Website"))
	}
	if r.Migrated {
		sides := zero(r.SidesOverlap, "no member reconciled anything while a stock replica did",
			"reconcile began while the other side worked", "reconciles began while the other side worked")
		return append(append(all, sides), r.Claims()...)
	}
	all = append(all, zero(r.UnownedAtEnd, "every slot has an owner", "slot has no owner", "slots have no owner"))
	all = append(all, r.Story...)
	all = append(all,
		zero(r.DutyOverlaps,
			fmt.Sprintf("no duty was ever done by two replicas at once (%d duties, %d runs)", r.Duties, r.DutyRuns),
			"time a duty was done by two replicas at once", "times a duty was done by two replicas at once"),
		zero(r.DutiesUndone, "every duty is done by a replica", "duty is not done", "duties are not done"))
	within := func(what string, took float64) {
		if bound := r.TakeOverBoundSeconds; bound > 0 && took > 0 {
			all = append(all, judge.ClaimOf(took <= bound,
				fmt.Sprintf("other replicas %s after %.1f s, of at most %.1f s", what, took, bound),
				fmt.Sprintf("other replicas %s only after %.1f s; the bound is %.1f s", what, took, bound)))
		}
	}
	within("did the killed replica's duty", r.DutyTakenOverSeconds)
	within("worked on the killed replica's slots", r.TakenOverSeconds)
	return append(append(all, r.Claims()...), zero(r.DeletionsMissed, "no deletion was missed while slots moved",
		"page was left behind by a deletion that no replica noticed",
		"pages were left behind by deletions that no replica noticed"))
}

// Failures lists what must not have happened, in words.
func (r *Report) Failures() []string { return judge.Failures(r.verdicts()) }

var phaseTitles = map[string]string{
	"join": "a replica joins", "leave": "one leaves (SIGTERM)", "crash": "one is killed (SIGKILL)",
	"hand":    "by hand",
	"rollout": "rolling restart of all", "release": "rolling update to the other release", "return": "and back",
	"v2": "canary v2", "v3": "canary v3", "v4": "canary v4",
	"there": "leader election to Rota", "back": "and back",
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Websites with three children each on %d replicas, in %d slots, delivered by %s, "+
		"under a load of %v changes per second that never stopped:\n\n", r.Objects, r.Members, r.Slots, r.Delivery, r.Rate)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if r.Migrated {
		_, _ = fmt.Fprintln(t, "\tlongest time without a reconcile\ttook\t")
	} else {
		_, _ = fmt.Fprintln(t, "\tslots moved\tmoves per slot\tobjects moved\tobject writes\ttable writes\tobjects listed\t"+
			"stall p50\tp99\tmax\ttook\t")
	}
	for _, p := range r.Phases {
		title := cmp.Or(phaseTitles[p.Name], p.Name)
		if r.Migrated {
			_, _ = fmt.Fprintf(t, "%s\t%.1f s\t%.1f s\t\n", title, p.GapSeconds, p.Seconds)
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%.1f s\t\n",
			title, p.MovedSlots, p.MovesPerSlot, p.MovedObjects, orUnknown(p.ObjectWrites), p.TableWrites,
			orUnknown(p.ListedObjects), judge.Millis(p.Stall.P50), judge.Millis(p.Stall.P99), judge.Millis(p.Stall.Max),
			p.Seconds)
	}
	_ = t.Flush()
	if !r.Migrated {
		b.WriteString("\nstall: how much longer than usual a change to a Website on the move waited for its reconcile.\n")
		b.WriteString("object writes: what moving cost Websites and children themselves; " +
			"only the table, one ConfigMap, was written.\n")
	}
	if n := r.LabelWritesBefore; n != nil && *n > 0 {
		fmt.Fprintf(&b, "labels: %d writes before anything moved, and one for each object created since then: "+
			"in an object's life, not for a move.\n", *n)
	}
	b.WriteByte('\n')
	if r.ForeignWrites == nil && !r.Migrated {
		b.WriteString("  ?     whether a replica wrote what was not its own: not measured, there is no audit log\n")
	}
	judge.WriteClaims(&b, r.verdicts())
	_, err := io.WriteString(w, b.String())
	return err
}

func orUnknown(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}
