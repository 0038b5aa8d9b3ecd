package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/view"
)

// planMoves is how many moves `rota plan` prints without -o wide.
const planMoves = 20

type planOptions struct {
	target rotaFlags
	out    output
	plan   view.PlanOptions
}

func newPlan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan [NAME]",
		Short: "Show what another number of replicas would move, and what each would hold",
		Long: `Shows what each member would hold with another number of replicas, and what would move. It changes nothing. It
asks the planner that the members themselves use, with the table, the weights and the duties as they are now. The
numbers of objects are estimates, by what the members report for each slot.

All replicas are taken to come or go at once. If they come one after another, some slots move more than once. Without
--replicas it shows what the planner would move now.`,
		Example: `  rota plan website -n operators --replicas 5
  rota plan website -n operators --without web-1
  rota plan website -n operators --replicas 2 -o json`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	o.out.bind(cmd, "table", "wide", "json", "yaml")
	cmd.ValidArgsFunction = o.target.completeRotas
	cmd.Flags().IntVar(&o.plan.Replicas, "replicas", 0,
		"number of replicas, from 1 to 4096 (default as many as there are)")
	cmd.Flags().StringSliceVar(&o.plan.Without, "without", nil,
		"members or Pods that end (default those that joined last)")
	_ = cmd.RegisterFlagCompletionFunc("without", func(cmd *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		return o.target.members(cmd, args)
	})
	return cmd
}

func (o *planOptions) run(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("replicas") && o.plan.Replicas < 1 {
		return usagef("plan: --replicas %d: must be at least 1", o.plan.Replicas)
	}
	r, err := o.target.read(cmd.Context(), args)
	if err != nil {
		return err
	}
	p, err := r.PlanFor(o.plan)
	if errors.Is(err, view.ErrPlan) {
		return withCode(exitUsage, fmt.Errorf("plan: %w", err))
	}
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if done, err := o.out.data(out, p); done {
		return err
	}
	return printPlan(out, newPaint(cmd, out), p, o.out.wide())
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
	what := fmt.Sprintf("%d slots", p.Slots)
	if p.Objects != nil {
		what += fmt.Sprintf(" with about %d objects", *p.Objects)
	}
	if p.Duties > 0 {
		what += fmt.Sprintf(" and %d duties", p.Duties)
	}
	if len(p.Moves) == 0 {
		what = "nothing"
	}
	fmt.Fprintf(w, "\n%s would move\n", what)
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
	section(w, "note", len(p.Notes))
	for _, note := range p.Notes {
		fmt.Fprintln(w, "  "+note)
	}
	_, err := io.WriteString(to, w.String())
	return err
}
