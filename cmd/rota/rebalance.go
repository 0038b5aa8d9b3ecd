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

// planMoves limits how many moves are printed without -o wide.
const planMoves = 20

type rebalanceOptions struct {
	out    output
	dryRun bool
	plan   view.PlanOptions
	// other is true if the plan is for different replicas than the current ones.
	other bool
}

func newRebalance() *cobra.Command {
	a := &actor{}
	o := &rebalanceOptions{}
	cmd := &cobra.Command{
		Use:   "rebalance [NAME]",
		Short: "Rebalance slots and duties now",
		Long: `Rebalances slots and duties now. Members also do this automatically, but only some time after a join, and in a
rollout only ten minutes after the last one. The plan is the same: by load if all members plan by load.

--dry-run only shows what would move, even while moves are paused. With --replicas or --without it plans as if replicas
were added or removed all at once. Object counts are estimates from the members' reports.`,
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
	a.bindWait(cmd, "all moves are finished")
	o.out.bind(cmd, "table", "wide", "json", "yaml")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would move, and change nothing")
	cmd.Flags().IntVar(&o.plan.Replicas, "replicas", 0,
		"with --dry-run: number of replicas to plan for, 1 to 4096 (default the current number)")
	cmd.Flags().StringSliceVar(&o.plan.Without, "without", nil,
		"with --dry-run: members or Pods to remove (default the last to join)")
	_ = cmd.RegisterFlagCompletionFunc("without", func(cmd *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		return a.target.members(cmd, args)
	})
	return cmd
}

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
		p, err = a.now(seen, o.dryRun)
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
		return counted(moving, "slot") + " and duties still moving", moving == 0, nil
	})
}

// now rebalances the current members. A dry run changes nothing.
func (a *actor) now(seen *view.Rota, dryRun bool) (*view.Plan, error) {
	var before, after *table.Table
	silent, unread := silent(seen)
	switch {
	case unread != "" && dryRun:
		a.progress("rota: cannot check whether the members renew their Leases: %s", unread)
	case unread != "":
		if _, err := a.reader.Epochs(a.cmd.Context()); err != nil { // its error names the missing permission
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
			a.progress("rota: member %s does not renew its Lease: `rota rebalance` would fail, and other members will soon "+
				"take its slots", id)
		}
		if before.Paused() {
			a.progress("rota: moves are paused: none begins before `rota resume`")
		}
	} else {
		after, _, err = a.give(func(t *table.Table, by orders.By) error {
			before = t.Clone()
			return orders.Rebalance(t, by.At, silent, loads)
		}, eventRebalanced, fixed("slots and duties are rebalanced"))
		if err != nil {
			return nil, err
		}
	}
	p := seen.PlanBetween(before, after)
	p.DryRun = dryRun
	return p, nil
}

// loadsAfter is how long after a handover a member's report includes the slot's load.
const loadsAfter = time.Minute

// loads returns the members' load reports. It is an error if members plan by load and a load is not measured yet, or if
// the reports could not be read, unless the moves are only shown.
func (a *actor) loads(r *view.Rota, dryRun bool) ([]planner.LoadReport, error) {
	reports := slices.Collect(maps.Values(r.Reports))
	loads := report.Loads(reports)
	byLoad := slices.ContainsFunc(loads, func(r planner.LoadReport) bool { return r.ByLoad })
	for _, u := range r.Unknown {
		switch {
		case u.What != "reports" || !byLoad && len(reports) > 0:
		case dryRun && !byLoad:
			a.progress("rota: cannot check whether the members plan by load, because their reports could not be read: this is "+
				"a plan by number: %s", u.Error)
		default:
			return nil, a.failed(u.Err)
		}
	}
	for _, rep := range reports {
		for _, h := range rep.Handovers {
			if age := time.Since(h.Ended); byLoad && age < loadsAfter {
				return nil, withCode(exitConflict, fmt.Errorf("rota %s: member %s received slots %v ago, and their load is not "+
					"measured yet: try again in a minute", a.rota, rep.Member, age.Round(time.Second)))
			}
		}
	}
	return loads, nil
}

func (a *actor) look() (r *view.Rota, err error) {
	err = within(a.cmd.Context(), func(ctx context.Context) error {
		if r, err = a.reader.Read(ctx); err != nil {
			return viewError(err)
		}
		return nil
	})
	return r, err
}

// silent returns the members that do not renew their Leases, or why the Leases could not be read.
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

// printPlan prints a plan as text.
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
		what = "only the rota's internal duties"
	}
	switch {
	case len(p.Moves) == 0:
		fmt.Fprint(w, "\nnothing to move: slots and duties are balanced\n")
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
	columns(w, "note", p.Notes, plain)
	return paint.print(to, w.String())
}
