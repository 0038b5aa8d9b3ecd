package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/report"
)

// planMoves is how many moves are printed without -o wide.
const planMoves = 20

type rebalanceOptions struct {
	out    output
	dryRun bool
	plan   view.PlanOptions
	// other is true if the plan is for other replicas than those that there are.
	other bool
}

func newRebalance() *cobra.Command {
	a := &actor{}
	o := &rebalanceOptions{}
	cmd := &cobra.Command{
		Use:   "rebalance [NAME]",
		Short: "Even out slots and duties now",
		Long: `Evens out the members' shares now. Members do that by themselves, but wait a moment after a join, and in a
rollout until ten minutes after the last one. The plan is theirs: by load if all members plan so.

--dry-run only shows what would move, even while moves are paused. With --replicas or --without it plans for another
number of replicas that all come or go at once. Numbers of objects are estimates from the members' reports.`,
		Example: `  rota rebalance -n operators --wait
  rota rebalance website -n operators --dry-run
  rota rebalance website -n operators --dry-run --replicas 5
  rota rebalance website -n operators --dry-run --without web-1`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if err := a.open(cmd, args); err != nil {
				return err
			}
			defer a.close()
			return a.rebalance(o)
		},
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "all moves are over")
	o.out.bind(cmd, "table", "wide", "json", "yaml")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would move, and change nothing")
	cmd.Flags().IntVar(&o.plan.Replicas, "replicas", 0,
		"with --dry-run: number of replicas to plan for, 1 to 4096 (default: the present one)")
	cmd.Flags().StringSliceVar(&o.plan.Without, "without", nil,
		"with --dry-run: members or Pods that end (default those that joined last)")
	_ = cmd.RegisterFlagCompletionFunc("without", func(cmd *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		return a.target.members(cmd, args)
	})
	return cmd
}

// check refuses flags that contradict each other.
func (o *rebalanceOptions) check(cmd *cobra.Command) error {
	replicas := cmd.Flags().Changed("replicas")
	switch o.other = replicas || len(o.plan.Without) > 0; {
	case o.other && !o.dryRun:
		return usagef("rebalance: --replicas and --without need --dry-run: to change the number of replicas, scale the " +
			"operator's Deployment")
	case replicas && o.plan.Replicas < 1:
		return usagef("rebalance: --replicas %d: must be at least 1", o.plan.Replicas)
	}
	return nil
}

func (a *actor) rebalance(o *rebalanceOptions) error {
	seen, err := a.look()
	if err != nil {
		return err
	}
	var p *view.Plan
	if o.other {
		if p, err = seen.PlanFor(o.plan); errors.Is(err, view.ErrPlan) {
			err = withCode(exitUsage, fmt.Errorf("rebalance: %w", err))
		}
	} else {
		p, err = a.even(seen, o.dryRun)
	}
	if err != nil {
		return err
	}
	out := a.cmd.OutOrStdout()
	if done, err := o.out.data(out, p); err != nil {
		return err
	} else if !done {
		if err := printPlan(out, newPaint(a.cmd, out), p, o.out.wide()); err != nil {
			return err
		}
	}
	if !a.wait || o.dryRun {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		moving := orders.Moving(t)
		return counted(moving, "slot") + " and duties moving yet", moving == 0, nil
	})
}

// even evens out the shares of the members that there are. A dry run changes nothing.
func (a *actor) even(seen *view.Rota, dryRun bool) (*view.Plan, error) {
	var before, after *table.Table
	silent, unread := silent(seen)
	switch {
	case unread != "" && dryRun:
		a.say("rota: nobody knows whether the members renew their Leases, which could not be read: %s", unread)
	case unread != "":
		if _, err := a.reader.Told(a.cmd.Context()); err != nil { // names the missing permission
			return nil, a.failed(err)
		}
		return nil, withCode(exitConflict, fmt.Errorf("rota %s: the Leases could not be read: %s; try again", a.rota, unread))
	}
	loads, err := a.loads(seen, dryRun)
	if err != nil {
		return nil, err
	}
	if dryRun {
		if before, err = readTable(a.cmd.Context(), a.store); err != nil {
			return nil, a.failed(err)
		}
		free := before.Clone()
		free.Pause = table.Pause{}
		if after, err = planner.Rebalance(free, time.Now().Unix(), loads); err != nil {
			return nil, withCode(exitConflict, fmt.Errorf("rota %s: %w", a.rota, err))
		}
		for _, id := range silent {
			a.say("rota: member %s does not renew its Lease: `rota rebalance` would refuse, and others soon take its slots", id)
		}
		if before.Paused() {
			a.say("rota: moves are paused, so none begins before `rota resume`")
		}
	} else {
		after, _, err = a.give(func(t *table.Table, by orders.By) error {
			before = t.Clone()
			return orders.Rebalance(t, by.At, silent, loads)
		}, eventRebalanced, says("slots and duties are evened out"))
		if err != nil {
			return nil, err
		}
	}
	p := seen.PlanBetween(before, after)
	p.DryRun = dryRun
	return p, nil
}

// loadsAfter is how long after a handover a member's report says how busy the slot keeps it.
const loadsAfter = time.Minute

// loads returns what members report of their loads. It is an error if some plan by load and nobody can know theirs yet,
// and if there are no reports because they could not be read, unless moves are only shown.
func (a *actor) loads(r *view.Rota, dryRun bool) ([]planner.LoadReport, error) {
	reports := slices.Collect(maps.Values(r.Reports))
	loads := report.Loads(reports)
	byLoad := slices.ContainsFunc(loads, func(r planner.LoadReport) bool { return r.ByLoad })
	for _, u := range r.Unknown {
		switch {
		case u.What != "reports" || !byLoad && len(reports) > 0:
		case dryRun && !byLoad:
			a.say("rota: nobody knows whether the members plan by load, since their reports could not be read: this is a plan "+
				"by number: %s", u.Error)
		default:
			return nil, a.failed(u.Err)
		}
	}
	for _, told := range reports {
		for _, h := range told.Handovers {
			if age := time.Since(h.Ended); byLoad && age < loadsAfter {
				return nil, withCode(exitConflict, fmt.Errorf("rota %s: slots came to member %s %v ago, and how busy they keep it "+
					"is not known yet: try again in a minute", a.rota, told.Member, age.Round(time.Second)))
			}
		}
	}
	return loads, nil
}

// look reads the rota once.
func (a *actor) look() (r *view.Rota, err error) {
	err = within(a.cmd.Context(), func(ctx context.Context) error {
		if r, err = a.reader.Read(ctx); err != nil {
			return viewError(err)
		}
		return nil
	})
	return r, err
}

// silent returns the members that do not renew their Leases, or why these could not be read.
func silent(r *view.Rota) (ids []string, unread string) {
	unread, bad := r.Unread("Leases")
	if bad {
		return nil, unread
	}
	for _, m := range r.Members {
		if m.State == view.Silent || m.State == view.Stopped || m.Renewed == nil {
			ids = append(ids, m.ID)
		}
	}
	return ids, ""
}

// printPlan prints a plan for people.
func printPlan(to io.Writer, paint paint, p *view.Plan, wide bool) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "rota %s/%s, epoch %d: %d replicas now, %d then\n\n", p.Namespace, p.Name, p.Epoch, p.Now, p.Replicas)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "MEMBER\tWEIGHT\tSLOTS\tGAINS\tLOSES\tTHEN\tOBJECTS\tTHEN\tDUTIES\tTHEN\tSTATE")
	number := strconv.Itoa
	for _, m := range p.Members {
		state := "stays"
		switch {
		case m.New:
			state = paint.good("new")
		case m.Ends:
			state = paint.warn("ends")
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\n", m.ID, m.Weight, m.Slots, m.Gains, m.Loses,
			m.Then, orDash(m.Objects, number), orDash(m.ObjectsThen, number), m.Duties, m.DutiesThen, state)
	}
	_ = t.Flush()
	what := counted(p.Slots, "slot")
	if p.Objects != nil {
		what += fmt.Sprintf(" with about %s", counted(*p.Objects, "object"))
	}
	switch {
	case p.Duties > 0:
		what += " and " + counted(p.Duties, "duty")
	case p.Slots == 0:
		what = "only duties of the rota's own"
	}
	switch {
	case len(p.Moves) == 0:
		fmt.Fprint(w, "\nnothing to move: slots and duties are as even as they can be\n")
	case p.DryRun:
		fmt.Fprintf(w, "\n%s would move\n", what)
	default:
		fmt.Fprintf(w, "\n%s move\n", what)
	}
	for i, m := range p.Moves {
		if i == planMoves && !wide {
			fmt.Fprintf(w, "  and %d more runs of slots: -o wide lists them\n", len(p.Moves)-planMoves)
			break
		}
		what := view.SlotsText(view.Run{First: m.First, Last: m.Last})
		if m.Duty != "" {
			what = "duty " + m.Duty
		}
		fmt.Fprintf(w, "  %s  %s -> %s\n", what, cmp.Or(m.From, "-"), cmp.Or(m.To, "-"))
	}
	columns(w, "note", p.Notes, asItIs)
	return paint.print(to, w.String())
}
