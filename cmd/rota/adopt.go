package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/internal/cli/adopt"
)

type adoptOptions struct {
	out         output
	name        string
	write, diff bool
}

func newAdopt() *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use:   "adopt [DIR]",
		Short: "Read an operator's source, and print what must change for Rota",
		Long: `Reads an operator's Go source from the folder of its go.mod, and prints what becomes of each manager,
controller and runnable, and which reads would return only a share of the objects. It does not use a cluster: run rota
check --pre to check one.

Lines begin with × (must change), ‼ (needs a look: it depends on the program's intent) or, with -o wide, √ (fine, or
done). A + after the line number means that --write makes the change. The exit status is 1 if a × is left, and 2 if
there is nothing to read.

--write makes the easy changes: the manager, its leader election, and controllers. A controller that may misbehave with
a share of the objects becomes a duty, which one replica at a time runs. The module must require Rota: if the result
does not compile, nothing is written. A comment //rota:ignore CODE REASON, on the line of a finding or above it, turns
it into √.`,
		Example: `  rota adopt
  rota adopt ../my-operator --diff
  rota adopt ../my-operator --write --name my-operator
  rota adopt -o json | jq '.controllers[] | {name, becomes, reason}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return o.run(cmd, dir)
		},
	}
	o.out.bind(cmd, "table", "wide", "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the rota (default the last part of the module's path)")
	f.BoolVar(&o.write, "write", false, "make the changes that are certainly correct, and print them")
	f.BoolVar(&o.diff, "diff", false, "print the changes of --write without making them")
	return cmd
}

func (o *adoptOptions) run(cmd *cobra.Command, dir string) error {
	if o.name != "" {
		if wrong := validation.IsDNS1123Label(o.name); len(wrong) > 0 {
			return usagef("adopt: --name %q: %s", o.name, wrong[0])
		}
	}
	if o.write && o.diff {
		return usagef("adopt: give --write or --diff, not both: --write also prints the changes")
	}
	if o.out.format != "table" && (o.write || o.diff) {
		return usagef("adopt: --write and --diff print a patch: leave out -o %s", o.out.format)
	}
	report, err := adopt.Run(cmd.Context(), adopt.Options{Dir: dir, Name: o.name, Progress: func(what string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: %s\n", what)
	}})
	if errors.As(err, new(*adopt.FolderError)) || errors.Is(err, fs.ErrNotExist) {
		return withCode(exitUsage, fmt.Errorf("adopt: %w", err))
	}
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	w := cmd.OutOrStdout()
	if o.write || o.diff {
		return o.change(cmd, w, report)
	}
	done, err := o.out.data(w, report)
	if !done {
		err = printAdopt(w, newPaint(cmd, w), report, o.out.wide())
	}
	if err == nil && report.Must > 0 {
		err = fmt.Errorf("adopt: %d findings require changes", report.Must)
	}
	return err
}

// change prints the changes. With --write it also makes them.
func (o *adoptOptions) change(cmd *cobra.Command, w io.Writer, report *adopt.Report) error {
	changes, err := report.Changes()
	if err != nil {
		return fmt.Errorf("adopt: nothing was written: %w", err)
	}
	note := cmd.ErrOrStderr()
	err = report.Check(cmd.Context(), changes)
	switch {
	case errors.Is(err, adopt.ErrNoRota) && o.write:
		return fmt.Errorf("adopt: nothing was written: %w. First, in %s: %s", err, report.Dir, report.GetRota())
	case errors.Is(err, adopt.ErrNoRota):
		_, _ = fmt.Fprintf(note, "rota: %v\n", err)
	case err != nil:
		return fmt.Errorf("adopt: nothing was written: %w", err)
	}
	for _, c := range changes {
		text, err := c.Diff()
		if err != nil {
			return fmt.Errorf("adopt: %w", err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	if o.diff {
		return nil
	}
	if err := adopt.Write(changes); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	left := report.Left()
	_, _ = fmt.Fprintf(note, "rota: %d files written; %d findings still require changes: rota adopt %s\n",
		len(changes), left, report.Dir)
	if report.NeedsNamespace() {
		_, _ = fmt.Fprintln(note,
			"rota: outside a Pod, set the program's namespace: POD_NAMESPACE=default make run")
	}
	if left > 0 {
		return fmt.Errorf("adopt: %d findings require manual changes", left)
	}
	return nil
}

// printAdopt prints a report as text: the outcome for each controller, and the findings file by file.
func printAdopt(to io.Writer, p paint, r *adopt.Report, wide bool) error {
	var b strings.Builder
	adoptHead(&b, r)
	explained := map[string]string{}
	file := "\x00"
	for _, f := range r.Findings {
		if f.Level == adopt.Fine && !wide {
			continue
		}
		if f.File != file {
			file = f.File
			title := file
			if title == "" {
				title = "the operator as a whole"
			}
			fmt.Fprintf(&b, "\n%s\n", title)
		}
		adoptLine(&b, p, f, explained)
	}
	for _, text := range r.Broken {
		fmt.Fprintf(&b, "\nnot compiled: %s", text)
	}
	written := 0
	for _, f := range r.Findings {
		if f.Written {
			written++
		}
	}
	fine := ""
	if !wide && r.Fine > 0 {
		fine = " (-o wide shows them)"
	}
	fmt.Fprintf(&b, "\n%d ×, %d ‼, %d √%s\n", r.Must, r.Look, r.Fine, fine)
	if written > 0 {
		fmt.Fprintf(&b, "`rota adopt --write` changes %d of them; --diff shows how\n", written)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// adoptHead prints the summary.
func adoptHead(b *strings.Builder, r *adopt.Report) {
	fmt.Fprintf(b, "%s: %s, %s: %d sharded, %s", r.Module, counted(len(r.Managers), "manager"),
		counted(len(r.Controllers), "controller"), r.Count(adopt.Sharded), counted(r.Count(adopt.Duty), "duty"))
	doubtful := 0
	for _, c := range r.Controllers {
		if c.Doubtful {
			doubtful++
		}
	}
	if doubtful > 0 {
		fmt.Fprintf(b, ", of which %d could be sharded after review", doubtful)
	}
	if n := r.Count(adopt.Stays); n > 0 {
		fmt.Fprintf(b, ", %d unchanged", n)
	}
	if n := r.Count(adopt.ByHand); n > 0 {
		fmt.Fprintf(b, ", %d to change manually", n)
	}
	b.WriteString("\n")
	if r.ControllerRuntime+r.ClientGo != "" {
		fmt.Fprintf(b, "controller-runtime %s, client-go %s\n", cmp.Or(r.ControllerRuntime, "none"),
			cmp.Or(r.ClientGo, "none"))
	}
	if len(r.Controllers) == 0 {
		return
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CONTROLLER\tFOR\tBECOMES\tBECAUSE")
	for _, c := range r.Controllers {
		name := c.Name
		if name == "" {
			name = "?"
		}
		kind := filepath.Base(c.For)
		if c.For == "" {
			kind = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, kind, c.Becomes, c.Reason)
	}
	_ = t.Flush()
}

// adoptLine prints a finding. It explains each code once.
func adoptLine(b *strings.Builder, p paint, f adopt.Finding, explained map[string]string) {
	sign := map[adopt.Level]string{adopt.Must: p.bad("×"), adopt.Look: p.warn("‼"), adopt.Fine: p.good("√")}[f.Level]
	line := ""
	if f.Line > 0 {
		line = strconv.Itoa(f.Line)
		if f.Written {
			line += "+"
		}
		line += ": "
	}
	fmt.Fprintf(b, "  %s %s%s\n", sign, line, f.Text)
	if f.Known != "" {
		fmt.Fprintf(b, "      known: %s\n", f.Known)
		return
	}
	if f.Kept != "" {
		fmt.Fprintf(b, "      --write leaves it: %s\n", f.Kept)
	}
	reason := f.Why + f.Instead
	if first, ok := explained[reason]; ok {
		if f.Level != adopt.Fine {
			fmt.Fprintf(b, "      see %s\n", first)
		}
		return
	}
	explained[reason] = "the line above"
	if f.File != "" {
		explained[reason] = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	for _, text := range []string{f.Why, "write: " + f.Instead} {
		if text != "" && text != "write: " {
			fmt.Fprintln(b, wrapAt("      "+text, 116, 6))
		}
	}
}
