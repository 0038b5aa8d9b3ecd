package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
)

const (
	// statusTimeout bounds all requests of one read.
	statusTimeout = 20 * time.Second
	// Limits on what `rota status` prints as text.
	maxWarnings   = 10
	maxEarlier    = 5
	lastHandovers = 5
	maxHistory    = 40
)

type statusOptions struct {
	target rotaFlags
	out    output
	all    bool
	watch  bool
	every  time.Duration
}

func newStatus() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the members of a rota, what moves, and what is wrong",
		Long: `Shows a rota's members and their shares, moves, duties, orders, recent handovers, and problems. -o wide adds
the busiest objects, failing reconciles, and the history with how far back it goes. -o name prints the members, or with
-A the rotas.`,
		Example: `  rota status website -n operators
  rota status -n operators --watch
  rota status -A
  rota status website -n operators -o json`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	o.out.bind(cmd)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "list the rotas of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "repeat until interrupted")
	cmd.Flags().DurationVar(&o.every, "every", 2*time.Second, "interval of --watch, at least 100ms")
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command, args []string) error {
	if o.every < 100*time.Millisecond {
		return usagef("status: --every %v: must be at least 100ms", o.every)
	}
	if o.all && len(args) > 0 {
		return usagef("status: give a name or -A, not both")
	}
	ctx := cmd.Context()
	var look func(context.Context, io.Writer) error
	explain := viewError
	if o.all {
		cfg, _, err := o.target.load()
		if err != nil {
			return err
		}
		look = func(ctx context.Context, w io.Writer) error { return o.list(ctx, w, cfg) }
	} else {
		cfg, rota, err := o.target.loadRota(ctx, args)
		if err != nil {
			return err
		}
		r, err := view.NewReader(cfg, rota.Namespace, rota.Name)
		if err != nil {
			return err
		}
		defer r.Close()
		explain = func(err error) error { return missingRota(ctx, cfg, rota, err) }
		look = func(ctx context.Context, w io.Writer) error { return o.one(ctx, cmd, w, r) }
	}
	for {
		var text strings.Builder
		err := within(ctx, func(ctx context.Context) error { return look(ctx, &text) })
		if err != nil && (!o.watch || ctx.Err() != nil) {
			return explain(err)
		}
		w := cmd.OutOrStdout()
		if o.watch {
			if err != nil { // the next attempt may succeed
				fmt.Fprintf(&text, "rota: %s\n", oneLine(err))
			}
			_, _ = io.WriteString(w, separator(w))
		}
		if _, err := io.WriteString(w, text.String()); err != nil || !o.watch {
			return err
		}
		select {
		case <-time.After(o.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// within bounds one read. f only reads, so a timeout means that the API server does not answer.
func within(ctx context.Context, f func(context.Context) error) error {
	look, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err := f(look)
	if err != nil && look.Err() != nil && ctx.Err() == nil {
		return withCode(exitUnreachable, fmt.Errorf("the API server does not answer: %w (after %v)", err, statusTimeout))
	}
	return err
}

// separator comes between two outputs of --watch: on a terminal it clears the screen.
func separator(w io.Writer) string {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return "\x1b[H\x1b[2J\x1b[3J"
	}
	return "---\n"
}

// missingRota adds the existing rotas to viewError.
func missingRota(ctx context.Context, cfg *rest.Config, rota types.NamespacedName, err error) error {
	if errors.Is(err, view.ErrNoRota) && !errors.Is(err, view.ErrTableLost) {
		err = fmt.Errorf("%w%s", err, elsewhere(ctx, cfg, rota))
	}
	return viewError(err)
}

// viewError adds an exit code to an error of view.Read.
func viewError(err error) error {
	if errors.Is(err, view.ErrNoRota) {
		return withCode(exitMissing, err)
	}
	return err
}

func (o *statusOptions) one(ctx context.Context, cmd *cobra.Command, w io.Writer, reader *view.Reader) error {
	r, err := reader.Read(ctx)
	if err != nil {
		return err
	}
	if done, err := o.out.data(w, r); done {
		return err
	}
	if o.out.format == "name" {
		for _, m := range r.Members {
			_, _ = fmt.Fprintln(w, m.ID)
		}
		return nil
	}
	return printStatus(w, newPaint(cmd, cmd.OutOrStdout()), r, o.out.wide())
}

// rotaLine is one rota in the output of --all-namespaces.
type rotaLine struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Rota      *view.Rota `json:"rota,omitempty"`
	Error     string     `json:"error,omitempty"`
}

func (o *statusOptions) list(ctx context.Context, w io.Writer, cfg *rest.Config) error {
	found, err := listRotas(ctx, cfg, "")
	if err != nil {
		return fmt.Errorf("list the rotas of all namespaces: %w", err)
	}
	lines := []rotaLine{}
	for _, name := range found {
		if o.out.format == "name" {
			_, _ = fmt.Fprintln(w, name)
			continue
		}
		lines = append(lines, lineOf(ctx, cfg, name))
	}
	if done, err := o.out.data(w, lines); done || o.out.format == "name" {
		return err
	}
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "there is no rota in this cluster")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAMESPACE\tNAME\tMEMBERS\tSLOTS\tMOVING\tPROBLEMS")
	for _, l := range lines {
		if l.Rota == nil {
			_, _ = fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t%s\n", l.Namespace, l.Name, l.Error)
			continue
		}
		problems := "none"
		if l.Rota.Shadow != nil {
			problems = "none (SHADOW: does no work)"
		}
		if n := len(l.Rota.Problems); n > 0 {
			problems = fmt.Sprintf("%d, such as %s", n, l.Rota.Problems[0].What)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\n", l.Namespace, l.Name, len(l.Rota.Members), l.Rota.Slots,
			len(l.Rota.Moves), problems)
	}
	return t.Flush()
}

func lineOf(ctx context.Context, cfg *rest.Config, name types.NamespacedName) rotaLine {
	l := rotaLine{Namespace: name.Namespace, Name: name.Name}
	var err error
	if l.Rota, err = view.Read(ctx, cfg, name.Namespace, name.Name); err != nil {
		l.Error = oneLine(err)
	}
	return l
}

func readTable(ctx context.Context, kube *store.Kubernetes) (*table.Table, error) {
	snapshot, err := kube.ReadTable(ctx)
	switch {
	case err != nil:
		return nil, err
	case snapshot.Err != nil:
		return nil, snapshot.Err
	case snapshot.Missing():
		return nil, missingf("%w: no member has ever started, or the table was deleted and the members have not created a "+
			"new one yet",
			view.ErrNoRota)
	default:
		return snapshot.Table, nil
	}
}

// printStatus prints a rota as text. Problems come right after the members.
func printStatus(to io.Writer, p paint, r *view.Rota, wide bool) error {
	w := &strings.Builder{}
	if r.Shadow != nil {
		fmt.Fprintln(w, p.warn(view.ShadowText))
	}
	printVerdict(w, p, r)
	fmt.Fprintf(w, "epoch %d, %d slots by %s%s, %d members\n", r.Epoch, r.Slots, r.Key, balanceText(r), len(r.Members))
	if r.Canary != nil {
		fmt.Fprintln(w, strings.Join(canaryLines(p, r), "\n"))
	}
	printPins(w, p, r)
	printMembers(w, p, r, wide)
	printShadow(w, r)
	if wide {
		columns(w, "slots that keep the most workers busy", r.Hottest, func(h view.Hot) string {
			return view.SlotsText(view.Run{First: h.First, Last: h.Last}) + "\t" + h.Member + "\t" + workers(h.Workers)
		})
		columns(w, "objects that keep the most workers busy", r.HottestObjects, func(h view.HotObject) string {
			return fmt.Sprintf("%s\t%s\tslot %d\t%s\t%s", h.Object(), h.Member, h.Slot, h.Controller, workers(h.Workers))
		})
		columns(w, "reconciles that hang or fail (the worst of each member)", r.Worst, func(k view.KeyHealth) string {
			return fmt.Sprintf("%s\t%s\tslot %d\t%s\t%s", k.Object(), k.Member, k.Slot, k.Controller, k.Text)
		})
	}
	columns(w, "what is wrong", r.Problems, func(problem view.Problem) string {
		mark := p.warn("‼ ")
		if problem.Severity == view.Error {
			mark = p.bad("× ")
		}
		return mark + problem.What + prefixed(" ", problem.Member) + prefixed(" ", slotsOf(problem.Slots)) + ": " +
			problem.Message
	})
	columns(w, "moving", r.Moves, moveText)
	if r.Table != nil && len(r.Table.Gone) > 0 {
		fmt.Fprintf(w, "\n%d deletions are pending for the next owners of activating slots\n", len(r.Table.Gone))
	}
	printDuties(w, r)
	if !wide {
		printHandovers(w, "\nlast handovers:", r.Handovers[:min(len(r.Handovers), lastHandovers)], r.At)
	}
	columns(w, "differences between members (a rollout may cause them until it ends, unless a reason is given)",
		r.Differences, plain)
	printWarnings(w, r)
	if r.Shadow == nil { // a shadow does not write
		fmt.Fprintf(w, "\nfence: %s\n", r.Fence)
	}
	columns(w, "not known", r.Unknown, func(u view.Unknown) string {
		return u.What + ": " + strings.Join(strings.Fields(u.Error), " ")
	})
	if wide {
		printHistory(w, p, r)
	}
	return p.print(to, w.String())
}

// printVerdict prints one line: whether all is well.
func printVerdict(w io.Writer, p paint, r *view.Rota) {
	if r.Shadow != nil {
		return
	}
	members, slots := r.Working()
	mark := p.good("√ ")
	switch {
	case slices.ContainsFunc(r.Problems, func(p view.Problem) bool { return p.Severity == view.Error }):
		mark = p.bad("× ")
	case len(r.Problems)+len(r.Unknown) > 0 || members < len(r.Members) || slots < int(r.Slots):
		mark = p.warn("‼ ")
	}
	all := fmt.Sprintf("all %d slots are", slots)
	if slots < int(r.Slots) {
		all = fmt.Sprintf("%d of %d slots are", slots, r.Slots)
	}
	_, _ = fmt.Fprintf(w, "%s%s/%s: %d of %d members work, %s worked on\n", mark, r.Namespace, r.Name, members,
		len(r.Members), all)
}

// printShadow prints what the members of a shadow would own.
func printShadow(w io.Writer, r *view.Rota) {
	if r.Shadow == nil {
		return
	}
	if len(r.Shadow.Kinds) == 0 {
		_, _ = fmt.Fprintln(w, "\nno member has reported yet: their logs show what they cannot list")
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "\nWOULD HAVE\tOBJECTS\tSHARE\tCHANGES/MIN\tLABELS TO WRITE")
	for _, k := range r.Shadow.Kinds {
		_, _ = fmt.Fprintf(out, "all of %s\t%d\t100%%\t%s\t%d\n", k.Kind, k.Objects,
			orDash(k.Changes, func(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }), k.Labels)
		for _, m := range k.Members {
			_, _ = fmt.Fprintf(out, "  %s\t%d\t%.0f%%\t\t\n", m.Member, m.Objects, 100*m.Share)
		}
	}
	_ = out.Flush()
}

func printPins(w io.Writer, p paint, r *view.Rota) {
	for _, pin := range r.Pins {
		met := ""
		if !pin.Met {
			met = p.warn(" (without these labels)")
		}
		_, _ = fmt.Fprintf(w, "%s is pinned to %s, and slot %d is on %s%s; since %s%s%s\n", pin.Object, pin.Labels,
			pin.Slot, cmp.Or(pin.Owner, "no member"), met, pin.Since.Format(time.RFC3339), prefixed(" by ", pin.By),
			prefixed(": ", pin.Reason))
	}
}

// balanceText describes how slots are shared, unless by number.
func balanceText(r *view.Rota) string {
	switch r.Balance {
	case view.BalanceLoad:
		return ", shared by load"
	case view.BalanceMixed:
		return ", shared by number because not all members share by load"
	}
	return ""
}

func workers(n float64) string { return fmt.Sprintf("%.2f workers", n) }

// slotsOf returns "slot 7" or "slots 7-9".
func slotsOf(text string) string {
	if _, err := strconv.Atoi(text); err == nil {
		return "slot " + text
	}
	return prefixed("slots ", text)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func section(w io.Writer, title string, n int) {
	if n > 0 {
		_, _ = fmt.Fprintf(w, "\n%s:\n", title)
	}
}

func plain(text string) string { return text }

// columns prints a line for each item below a title. Tabs separate columns.
func columns[T any](w io.Writer, title string, all []T, line func(T) string) {
	section(w, title, len(all))
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, one := range all {
		_, _ = fmt.Fprintln(out, "  "+line(one))
	}
	_ = out.Flush()
}

func printMembers(w io.Writer, p paint, r *view.Rota, wide bool) {
	if len(r.Members) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "MEMBER\tAGE\tBUILD\tSLOTS\tCOMING\tGOING\tDUTIES\tOBJECTS\tWAITING\tLEFT\t"
	if wide {
		head += "LOAD\tPOD\tWEIGHT\tOPEN\tLEASE\tGATE\t"
	}
	_, _ = fmt.Fprintln(out, head+"STATE")
	number := strconv.Itoa
	for _, m := range r.Members {
		line := []string{
			m.ID, age(m.Joined, r.At), cmp.Or(m.Build, "-"), number(m.Owned), number(m.Coming), number(m.Going),
			number(m.Duties), orDash(m.Objects, number), orDash(m.OldestWaiting, seconds), orDash(m.Left, wholeSeconds),
		}
		if wide {
			renewed := "missing"
			if m.Renewed != nil {
				renewed = "not known"
			}
			if m.Renewed != nil && m.Left != nil {
				renewed = wholeSeconds(m.Lease-*m.Left) + " ago"
			}
			load := func(workers float64) string { return fmt.Sprintf("%.2f", workers) }
			line = append(line, orDash(m.Load, load), m.Pod, number(m.Weight), orDash(m.Open, number), renewed,
				cmp.Or(m.Gate, "-"))
		}
		_, _ = fmt.Fprintln(out, strings.Join(append(line, stateOf(p, m.State)), "\t"))
	}
	_ = out.Flush()
}

func wholeSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func stateOf(p paint, s view.State) string {
	switch s {
	case view.Working:
		return p.good(string(s))
	case view.Silent, view.Stopped:
		return p.bad(string(s))
	default:
		return p.warn(string(s))
	}
}

func moveText(m view.Move) string {
	what := view.SlotsText(view.Run{First: m.First, Last: m.Last})
	if m.Duty != "" {
		what = "duty " + m.Duty
	}
	// Once slots activate, their former owners are unknown.
	return fmt.Sprintf("%s  %s-> %s (%s%s)", what, suffixed(m.From, " "), m.To, phaseText(m.Phase),
		prefixed(", for ", orEmpty(m.Seconds, seconds)))
}

func orEmpty[T any](v *T, text func(T) string) string {
	if v == nil {
		return ""
	}
	return text(*v)
}

// printDuties prints the owner of each duty.
func printDuties(w io.Writer, r *view.Rota) {
	if len(r.Duties) == 0 {
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "\nDUTY\tMEMBER\tSTATE")
	for _, d := range r.Duties {
		state := d.State
		if d.Next != "" {
			state = "Moving to " + d.Next
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\n", d.Name, cmp.Or(d.Owner, "-"), state)
	}
	_ = out.Flush()
}

// printHandovers prints how slots and duties came to their owners, and the duration of each phase.
func printHandovers(w io.Writer, title string, handovers []view.Handover, now time.Time) {
	if len(handovers) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, title)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "  ENDED\tWHAT\tFROM\tTO\tCAUSE\tEPOCH\tWARM\tDRAIN\tACTIVATE")
	for _, h := range handovers {
		what := fmt.Sprintf("%d slots", h.Count)
		if h.Duty != "" {
			what = "duty " + h.Duty
		} else if h.Count == 1 {
			what = "slot " + h.Slots
		}
		_, _ = fmt.Fprintf(out, "  %s ago\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", age(h.Ended, now), what, cmp.Or(h.From, "-"),
			h.To, h.Cause, h.Epoch, seconds(h.Warm), seconds(h.Drain), seconds(h.Activate))
	}
	_ = out.Flush()
}

// printHistory prints past events, and how far back they go.
func printHistory(w io.Writer, p paint, r *view.Rota) {
	title, shown := "history, newest first", r.History
	if left := len(shown) - maxHistory; left > 0 {
		title += fmt.Sprintf(" (%d older events left out: see -o json)", left)
		shown = shown[:maxHistory]
	}
	columns(w, title, shown, func(e view.Event) string {
		what := e.What
		switch what {
		case view.HappenedExpel:
			what = p.bad(what)
		case view.HappenedWarning, view.HappenedDrain, view.HappenedPause:
			what = p.warn(what)
		}
		return fmt.Sprintf("%s\t%s ago\t%s\t%s\t%s", e.At.Local().Format(time.DateTime), age(e.At, r.At), what,
			cmp.Or(e.Member, "-"), e.Text)
	})
	columns(w, "how far back the history goes", r.HistoryReach, plain)
}

// printWarnings prints current and past warnings, the newest first.
func printWarnings(w io.Writer, r *view.Rota) {
	now := slices.DeleteFunc(r.Now(),
		func(e view.Warning) bool { return e.Reason == view.SlotHeldBack }) // listed as a problem
	for _, part := range []struct {
		title    string
		warnings []view.Warning
		most     int
	}{
		{"warnings of the last hour", now, maxWarnings}, {"earlier, and over", r.Earlier(), maxEarlier},
	} {
		if left := len(part.warnings) - part.most; left > 0 {
			part.title += fmt.Sprintf(" (%d older ones left out)", left)
			part.warnings = part.warnings[:part.most]
		}
		columns(w, part.title, part.warnings, func(e view.Warning) string {
			text := strings.ReplaceAll(e.Message, "\n", "\n      ") // a rule to add stays YAML
			if e.Over != "" {
				text, _, _ = strings.Cut(e.Message, "\n")
				text = e.Over + ". It was: " + text
			}
			return fmt.Sprintf("%v ago\t%s\t%s\t%s", max(0, r.At.Sub(e.At)).Round(time.Second),
				cmp.Or(e.About, e.ID, e.Member, "-"), e.Reason, text)
		})
	}
}
