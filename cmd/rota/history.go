package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/view"
)

type historyOptions struct {
	target rotaFlags
	out    output
	limit  int
}

func newHistory() *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show what happened to a rota lately: joins, expels, handovers with their reasons, events",
		Long: `Shows what happened to a rota lately, newest first: which members joined and were expelled, which slots and
duties came to whom, why, and how long each phase took, what people asked for, and the members' events. Nobody keeps all
of it, so it says how far back it reaches. The clocks are those of the machines that wrote it.`,
		Example: `  rota history website -n operators
  rota history website -n operators --limit 0 -o json`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	o.out.bind(cmd, "table", "json", "yaml")
	cmd.ValidArgsFunction = o.target.completeRotas
	cmd.Flags().IntVar(&o.limit, "limit", 40, "how many events, the newest ones; 0: all")
	return cmd
}

func (o *historyOptions) run(cmd *cobra.Command, args []string) error {
	if o.limit < 0 {
		return usagef("history: --limit %d: must not be negative", o.limit)
	}
	r, err := o.target.read(cmd.Context(), args)
	if err != nil {
		return err
	}
	h := r.History()
	left := 0
	if o.limit > 0 && len(h.Events) > o.limit {
		left = len(h.Events) - o.limit
		h.Events = h.Events[:o.limit]
	}
	out := cmd.OutOrStdout()
	if done, err := o.out.data(out, h); done {
		return err
	}
	return printHistory(out, newPaint(cmd, out), h, left, r.At)
}

// printHistory prints a history for people. left is how many older events are not in it.
func printHistory(to io.Writer, p paint, h *view.History, left int, now time.Time) error {
	w := &strings.Builder{}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "WHEN\tAGO\tWHAT\tMEMBER\tHOW")
	for _, e := range h.Events {
		what := e.What
		switch e.What {
		case view.HappenedExpel:
			what = p.bad(what)
		case view.HappenedWarning, view.HappenedDrain, view.HappenedPause:
			what = p.warn(what)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", e.At.Local().Format(time.DateTime), age(e.At, now), what,
			cmp.Or(e.Member, "-"), e.Text)
	}
	_ = t.Flush()
	if left > 0 {
		fmt.Fprintf(w, "%d older events are left out: --limit 0 shows all\n", left)
	}
	section(w, "how far back this reaches", len(h.Reach))
	for _, reach := range h.Reach {
		fmt.Fprintln(w, "  "+reach)
	}
	section(w, "not known", len(h.Unknown))
	for _, u := range h.Unknown {
		fmt.Fprintf(w, "  %s: %s\n", u.What, strings.Join(strings.Fields(u.Error), " "))
	}
	_, err := io.WriteString(to, w.String())
	return err
}
