package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func orUnknown(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

var phaseTitles = map[string]string{
	"join": "a replica joins", "leave": "one leaves (SIGTERM)", "crash": "one is killed (SIGKILL)", "rollout": "rolling restart of all",
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Websites with three children each on %d replicas, in %d slots, delivered by %s, under a load of %v changes per second that never stopped:\n\n",
		r.Objects, r.Members, r.Slots, r.Delivery, r.Rate)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "\tslots moved\tmoves per slot\tobjects moved\tobject writes\ttable writes\tobjects listed\treceived\tstall p50\tp99\tmax\tmachine busy\ttook\t")
	for _, p := range r.Phases {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%.1f s\t\n", phaseTitles[p.Name], p.MovedSlots, p.MovesPerSlot, p.MovedObjects,
			orUnknown(p.ObjectWrites), p.TableWrites, orUnknown(p.ListedObjects), p.ReceivedObjects, ms(p.Stall.P50), ms(p.Stall.P99), ms(p.Stall.Max), percent(p.MachineBusy), p.Seconds)
	}
	_ = t.Flush()
	b.WriteString("\nstall: how much longer than usual a change to a Website on the move waited for its reconcile.\n")
	b.WriteString("machine busy: the part of the time in which the machine's processors worked, for the API server and the load, too.\n")
	b.WriteString("object writes: what moving cost Websites and children themselves; only the table, one ConfigMap, was written.\n\n")
	if n := r.LabelWritesBefore; n != nil && *n > 0 {
		fmt.Fprintf(&b, "labels: %d writes before anything moved, and one for each object created since then: in an object's life, not for a move.\n\n", *n)
	}
	verdict := func(good bool, yes, no string) {
		mark, text := "ok  ", yes
		if !good {
			mark, text = "FAIL", no
		}
		fmt.Fprintf(&b, "  %s  %s\n", mark, text)
	}
	verdict(r.Overlaps == 0, "no Website was ever reconciled by two replicas at once",
		count(r.Overlaps, "time a Website was", "times a Website was")+" reconciled by two replicas at once")
	if r.ForeignWrites == nil {
		b.WriteString("  ?     whether a replica wrote what was not its own: not measured, there is no audit log\n")
	} else {
		verdict(*r.ForeignWrites == 0, "no replica wrote to a Website that was not its own, or to a child of one (by the API server's audit log)",
			count(*r.ForeignWrites, "write", "writes")+" by a replica that did not own the Website")
	}
	verdict(r.UnownedAtEnd == 0, "every slot has an owner", count(r.UnownedAtEnd, "slot has", "slots have")+" no owner")
	if r.TakeOverBoundSeconds > 0 {
		verdict(r.TakenOverSeconds <= r.TakeOverBoundSeconds,
			fmt.Sprintf("the killed replica's slots had new owners at work after %.1f s, of at most %.1f s", r.TakenOverSeconds, r.TakeOverBoundSeconds),
			fmt.Sprintf("the killed replica's slots had new owners at work only after %.1f s; the bound is %.1f s", r.TakenOverSeconds, r.TakeOverBoundSeconds))
	}
	verdict(r.Reconciled == r.Objects, fmt.Sprintf("all %d Websites are up to date", r.Objects),
		fmt.Sprintf("%d of %d Websites are not up to date", r.Objects-r.Reconciled, r.Objects))
	verdict(r.ChildrenRight == r.Children && r.ChildrenStray == 0, fmt.Sprintf("all their %d children are there, and as they have to be", r.Children),
		fmt.Sprintf("%d of %d children are as they have to be, and %d belong to no Website", r.ChildrenRight, r.Children, r.ChildrenStray))
	verdict(r.DeletionsMissed == 0, "no deletion was missed while slots moved",
		count(r.DeletionsMissed, "page was", "pages were")+" left behind by a deletion that nobody noticed")
	_, err := io.WriteString(w, b.String())
	return err
}

func percent(part *float64) string {
	if part == nil {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", 100**part)
}

func ms(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.1f s", v/1000)
	case v >= 10 || v == 0:
		return fmt.Sprintf("%.0f ms", v)
	default:
		return fmt.Sprintf("%.1f ms", v)
	}
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
