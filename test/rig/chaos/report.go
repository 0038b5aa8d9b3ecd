package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rota-dev/rota/test/rig/judge"
)

// Report is what a campaign showed. Its JSON form is the output of `chaos -o json`.
type Report struct {
	Fence        bool    `json:"fence"`
	Objects      int     `json:"objects"`
	LeaseSeconds float64 `json:"lease_seconds"`
	Faults       []Row   `json:"faults"`
	Total        Row     `json:"total"`
	// Failing are the runs that showed something wrong, or could not be judged.
	Failing []Failing `json:"failing,omitempty"`
}

// Failing is a run that failed.
type Failing struct {
	Result
	// Why says in words what is wrong.
	Why []string `json:"why"`
}

// Row sums the runs of a fault.
type Row struct {
	Fault     string `json:"fault"`
	Runs      int    `json:"runs"`
	NotJudged int    `json:"not_judged"`
	judge.Figures
	Leaks   int     `json:"leaks"`
	Seconds float64 `json:"seconds"`
}

func (r *Row) add(result Result) {
	r.Runs++
	r.Seconds += result.Seconds
	if v := result.Verdict; v != nil {
		r.Add(v.Figures)
		r.Leaks += len(v.Leaks)
	} else {
		r.NotJudged++
	}
}

func newReport(o *Options, all []Result) *Report {
	r := &Report{Fence: o.Fence, Objects: o.Objects, LeaseSeconds: o.Lease.Seconds(), Total: Row{Fault: "all"}}
	index := map[string]int{}
	for _, result := range all {
		i, ok := index[result.Fault]
		if !ok {
			i = len(r.Faults)
			index[result.Fault] = i
			r.Faults = append(r.Faults, Row{Fault: result.Fault})
		}
		r.Faults[i].add(result)
		r.Total.add(result)
		if why := result.Failures(); len(why) > 0 {
			r.Failing = append(r.Failing, Failing{result, why})
		}
	}
	return r
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	with := "without a fence"
	if r.Fence {
		with = "with the fence"
	}
	fmt.Fprintf(&b, "\n%d Websites, leases of %g s, %s:\n\n", r.Objects, r.LeaseSeconds, with)
	r.table(&b, "\truns\toperations\tlate writes\tbetween\tlatest\trefused\toverlaps\tpaused\tlongest\tawake\tslowest\t"+
		"orphans\tlost\tmissed\tepochs\tleaks", func(row *Row) []any {
		return []any{
			row.Runs, row.Operations, row.LateWrites, row.LateWritesBetween, duration(row.LatestMillis), row.Refused,
			row.Overlaps, row.PausedOverlaps, duration(row.LongestMillis), duration(row.AwakeMillis),
			duration(row.SlowestMillis), row.Orphans, row.LostUpdates, row.DeletionsMissed, row.Misuses, row.Leaks,
		}
	})
	r.table(&b, "duties\truns\twrites\tlate writes\tbetween\tlatest\trefused\toverlaps\tpaused\tlongest gap\ttoo long\t"+
		"stale", func(row *Row) []any {
		d := &row.Duties
		return []any{
			d.Runs, d.Writes, d.LateWrites, d.LateWritesBetween, duration(d.LatestMillis), d.Refused, d.Overlaps,
			d.PausedOverlaps, duration(d.LongestGapMillis), d.Gaps, d.Stale,
		}
	})
	for _, line := range legend {
		b.WriteString(line + "\n")
	}
	for _, result := range r.Failing {
		b.WriteString("\n" + result.String() + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a line for each fault, and one for all.
func (r *Report) table(w io.Writer, titles string, of func(*Row) []any) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, titles+"\t")
	for _, row := range slices.Concat(r.Faults, []Row{r.Total}) {
		_, _ = fmt.Fprint(t, row.Fault)
		for _, value := range of(&row) {
			_, _ = fmt.Fprintf(t, "\t%v", value)
		}
		_, _ = fmt.Fprintln(t, "\t")
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(w)
}

var legend = []string{
	"late writes: accepted from a member that did not own the object, when the new owner worked; " +
		"between: before it did; latest: after the slot was taken.",
	"refused: by the fence. overlaps: reconciles of one object by two processes at once, none of which was stopped; " +
		"paused: one was; awake: without that time.",
	"slowest: the longest that a change waited for its reconcile while the API server could be reached; " +
		"orphans waited longer than a lease, FenceDelay and 4 s, in planned moves than a lease.",
	"lost: objects not up to date at the end. missed: deletions that no reconcile saw although their slots were only " +
		"handed over. epochs: that do not rise, or belong to two owners.",
	"duties, longest gap: the longest time from one write of a duty by its owner to the next while the API server could " +
		"be reached; too long: gaps longer than a change may wait, or, after a crash, than a lease, FenceDelay and 0.5 s. " +
		"stale: runs that did not see what was written in the duty before.",
}

func duration(millis float64) string {
	switch {
	case millis == 0:
		return "-"
	case millis < 1000:
		return fmt.Sprintf("%.0f ms", millis)
	default:
		return fmt.Sprintf("%.1f s", millis/1000)
	}
}
