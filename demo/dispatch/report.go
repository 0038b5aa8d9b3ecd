package dispatch

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Report is what a run showed. Its JSON form is the output of `rota-demo --dispatch --output json`.
type Report struct {
	rig.Settled
	Dispatchers     int `json:"dispatchers"`
	Workers         int `json:"workers"`
	WorkersInPython int `json:"workers_in_python"`
	Slots           int `json:"slots"`
	// Rate is the number of changes per second of the load.
	Rate float64 `json:"rate"`
	// TakeSeconds is how long a take lasts.
	TakeSeconds   float64 `json:"take_seconds"`
	RememberNames bool    `json:"remember_names"`
	// Takes counts the takes that workers began to work on. Overlaps counts pairs of takes of one key that overlap in
	// time: a take lasts until its worker was done, or until its deadline.
	Takes    int `json:"takes"`
	Overlaps int `json:"overlaps"`
	// OverdueSeconds is the longest time for which a worker that was not stopped went on with a key after its take had
	// expired.
	OverdueSeconds      float64 `json:"overdue_seconds"`
	OverdueBoundSeconds float64 `json:"overdue_bound_seconds"`
	// KeysLost counts the Websites whose last change no take has seen.
	KeysLost int `json:"keys_lost"`
	// WorkersKilled and WorkersStopped are how many workers were, and TakesLost what they had in hand then. RetakenSeconds
	// is how long it took at most until such a key was taken again; KeysNotRetaken are those that never were.
	WorkersKilled       int     `json:"workers_killed"`
	WorkersStopped      int     `json:"workers_stopped"`
	TakesLost           int     `json:"takes_lost"`
	KeysNotRetaken      int     `json:"keys_not_retaken"`
	RetakenSeconds      float64 `json:"retaken_seconds"`
	RetakenBoundSeconds float64 `json:"retaken_bound_seconds"`
	// FirstTakenOverSeconds is how long after the kill the first key of the killed dispatcher's slots was taken from
	// another one. TakenOverSeconds is the same for the last of these slots. TakeOverBoundSeconds is its bound
	// (docs/guarantees.md).
	FirstTakenOverSeconds float64 `json:"first_taken_over_seconds"`
	TakenOverSeconds      float64 `json:"taken_over_seconds"`
	TakeOverBoundSeconds  float64 `json:"take_over_bound_seconds"`
	// Deletions are those for good. DeletionsMissed are pages left behind by them, except in the slots of the killed
	// dispatcher until another one had them: DeletionsInCrash is how many were deleted there, and DeletionsMissedInCrash
	// how many of their pages were left behind.
	Deletions              int     `json:"deletions"`
	DeletionsMissed        int     `json:"deletions_missed"`
	DeletionsInCrash       int     `json:"deletions_in_crash"`
	DeletionsMissedInCrash int     `json:"deletions_missed_in_crash"`
	Phases                 []Phase `json:"phases"`
}

// Phase is what one phase showed.
type Phase struct {
	Name string `json:"name"`
	// MovedSlots counts the slots that changed their owner.
	MovedSlots int `json:"moved_slots"`
	// Takes counts the takes that began in the phase. Again counts the ones whose key an earlier take had not finished.
	Takes int `json:"takes"`
	Again int `json:"again"`
	// Changes counts the changes to Websites in the phase. Wait is how long they waited until a worker had read them.
	Changes int          `json:"changes"`
	Wait    judge.Spread `json:"wait_ms"`
	Seconds float64      `json:"seconds"`
}

// verdicts are in the order of the text.
func (r *Report) verdicts() []judge.Claim {
	all := []judge.Claim{
		judge.ClaimOf(r.Overlaps == 0 && r.Takes > 0,
			fmt.Sprintf("no key was ever taken twice at a time, in %d takes", r.Takes),
			fmt.Sprintf("of %d takes, %s of one key at the same time", r.Takes,
				judge.Count(r.Overlaps, "pair was", "pairs were"))),
		judge.ClaimOf(r.OverdueSeconds <= r.OverdueBoundSeconds,
			"no worker that ran went on with a key after its take had expired",
			fmt.Sprintf("a worker went on for %.1f s after its take had expired; the bound is %.1f s",
				r.OverdueSeconds, r.OverdueBoundSeconds)),
		judge.ClaimOf(r.KeysLost == 0, "no key was lost: a worker has seen the last change of every Website",
			fmt.Sprintf("the last change of %s was seen by no worker", judge.Count(r.KeysLost, "Website", "Websites"))),
	}
	all = append(all, r.Claims()...)
	lost := judge.Count(r.TakesLost, "key that workers had", "keys that workers had") +
		" when they were killed or stopped"
	switch took, bound := r.RetakenSeconds, r.RetakenBoundSeconds; {
	case r.KeysNotRetaken > 0:
		all = append(all, judge.Claim{No: fmt.Sprintf("of %s, %d never were taken again", lost, r.KeysNotRetaken)})
	default:
		all = append(all, judge.ClaimOf(took <= bound && r.TakesLost > 0,
			fmt.Sprintf("%s were taken again after %.1f s, of at most %.1f s", lost, took, bound),
			fmt.Sprintf("%s were taken again only after %.1f s; the bound is %.1f s", lost, took, bound)))
	}
	took, bound := r.TakenOverSeconds, r.TakeOverBoundSeconds
	return append(all, judge.ClaimOf(took <= bound && took > 0,
		fmt.Sprintf("the killed dispatcher's keys came from others after %.1f s, those of the last slot after %.1f s, "+
			"of at most %.1f s", r.FirstTakenOverSeconds, took, bound),
		fmt.Sprintf("the killed dispatcher's keys came from others only after %.1f s; the bound is %.1f s", took, bound)),
		judge.ClaimOf(r.DeletionsMissed == 0,
			fmt.Sprintf("none of %d deletions was missed while slots moved as planned", r.Deletions-r.DeletionsInCrash),
			judge.Count(r.DeletionsMissed, "page was", "pages were")+" left behind by a deletion that nobody noticed"))
}

// Failures lists what must not have happened, in words.
func (r *Report) Failures() []string { return judge.Failures(r.verdicts()) }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Websites with three children each, reconciled by %d workers (%d in Python) that take keys "+
		"from %d dispatchers, in %d slots, under a load of %v changes per second that never stopped. A take lasts %v s.\n\n",
		r.Objects, r.Workers, r.WorkersInPython, r.Dispatchers, r.Slots, r.Rate, r.TakeSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "\tslots moved\ttakes\tonce more\tchanges\twaited p50\tp99\tmax\ttook\t")
	for _, p := range r.Phases {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%.1f s\t\n", title(p.Name), p.MovedSlots, p.Takes, p.Again,
			p.Changes, judge.Millis(p.Wait.P50), judge.Millis(p.Wait.P99), judge.Millis(p.Wait.Max), p.Seconds)
	}
	_ = t.Flush()
	b.WriteString("\nonce more: takes of keys that an earlier take had not brought to an end.\n")
	b.WriteString("waited: how long a change waited until a worker had taken its key and begun to read.\n\n")
	if r.DeletionsInCrash > 0 {
		remembered := "did not remember names"
		if r.RememberNames {
			remembered = "remember names"
		}
		fmt.Fprintf(&b, "deletions: %d Websites were deleted in the killed dispatcher's slots before another one had them, "+
			"and %d of these deletions were missed; the dispatchers %s.\n\n",
			r.DeletionsInCrash, r.DeletionsMissedInCrash, remembered)
	}
	judge.WriteClaims(&b, r.verdicts())
	_, err := io.WriteString(w, b.String())
	return err
}

func title(phase string) string {
	titles := map[string]string{
		"join": "a dispatcher joins", "leave": "one leaves (SIGTERM)", "crash": "one is killed (SIGKILL)",
		"rollout": "rolling restart of all", "worker killed": "a worker is killed", "worker stopped": "one is stopped",
		"worker in Python killed": "one in Python is killed", "worker in Python stopped": "one in Python is stopped",
	}
	if t, ok := titles[phase]; ok {
		return t
	}
	return phase
}
