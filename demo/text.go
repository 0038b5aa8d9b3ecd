package demo

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/rota-dev/rota/demo/verdict"
)

func orUnknown(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

var phaseTitles = map[string]string{
	"join": "a replica joins", "leave": "one leaves (SIGTERM)", "crash": "one is killed (SIGKILL)",
	"hand":    "by hand",
	"rollout": "rolling restart of all", "release": "rolling update to the other release", "return": "and back",
	"v2": "canary v2", "v3": "canary v3", "v4": "canary v4",
	"grow": "a burst", "shrink": "after it",
	"there": "leader election to Rota", "back": "and back",
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	if r.Migrated {
		return r.writeMigration(w)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Websites with three children each on %d replicas, in %d slots, delivered by %s, "+
		"under a load of %v changes per second that never stopped:\n\n", r.Objects, r.Members, r.Slots, r.Delivery, r.Rate)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "\tslots moved\tmoves per slot\tobjects moved\tobject writes\ttable writes\tobjects listed\t"+
		"received\tstall p50\tp99\tmax\tmachine busy\ttook\t")
	for _, p := range r.Phases {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%.1f s\t\n",
			cmp.Or(phaseTitles[p.Name], p.Name), p.MovedSlots, p.MovesPerSlot, p.MovedObjects, orUnknown(p.ObjectWrites),
			p.TableWrites, orUnknown(p.ListedObjects), p.ReceivedObjects,
			verdict.Text(p.Stall.P50), verdict.Text(p.Stall.P99), verdict.Text(p.Stall.Max),
			percent(p.MachineBusy), p.Seconds)
	}
	_ = t.Flush()
	b.WriteString("\nstall: how much longer than usual a change to a Website on the move waited for its reconcile.\n")
	b.WriteString("machine busy: the part of the time in which the machine's processors worked, " +
		"for the API server and the load, too.\n")
	b.WriteString("object writes: what moving cost Websites and children themselves; " +
		"only the table, one ConfigMap, was written.\n\n")
	if n := r.LabelWritesBefore; n != nil && *n > 0 {
		fmt.Fprintf(&b, "labels: %d writes before anything moved, and one for each object created since then: "+
			"in an object's life, not for a move.\n\n", *n)
	}
	if r.DutyMoves > 0 {
		fmt.Fprintf(&b, "duties: handed over %d times; nobody did the duty for %s (p50), %s at most.\n\n",
			r.DutyMoves, verdict.Text(r.DutyGap.P50), verdict.Text(r.DutyGap.Max))
	}
	r.writeTrials(&b)
	if r.ForeignWrites == nil {
		b.WriteString("  ?     whether a replica wrote what was not its own: not measured, there is no audit log\n")
	}
	verdict.Write(&b, r.verdicts())
	_, err := io.WriteString(w, b.String())
	return err
}

func percent(part *float64) string {
	if part == nil {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", 100**part)
}
