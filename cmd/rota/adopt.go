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
		Short: "Read an operator's source, and print what it has to change to run with Rota",
		Long: `Reads an operator's Go source, the folder of its go.mod, and prints what becomes of each manager, controller
and runnable, and which reads see a share only. It asks no cluster: see rota check --pre for that.

Lines begin with × (change it), ‼ (look: it depends on what the program means) or, with -o wide, √ (known, or done). A +
behind the line number means that --write makes the change. The exit status is 1 if a × is left, and 2 if there is
nothing to read.

--write makes the easy changes: the manager, its leader election, and controllers. A controller that may go wrong on a
share becomes a duty, which one replica at a time runs. The module has to require Rota: if the result does not compile,
nothing is written. A comment //rota:ignore CODE REASON, on the line of a finding or above it, makes it √.`,
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
	f.BoolVar(&o.write, "write", false, "make the changes that are surely right, and print them")
	f.BoolVar(&o.diff, "diff", false, "print the changes that --write would make")
	return cmd
}

func (o *adoptOptions) run(cmd *cobra.Command, dir string) error {
	if o.name != "" {
		if wrong := validation.IsDNS1123Label(o.name); len(wrong) > 0 {
			return usagef("adopt: --name %q: %s", o.name, wrong[0])
		}
	}
	if o.write && o.diff {
		return usagef("adopt: give --write or --diff, not both: --write prints the changes, too")
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
		err = fmt.Errorf("adopt: %d findings must be changed", report.Must)
	}
	return err
}

// change prints the changes, and makes them with --write.
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
	_, _ = fmt.Fprintf(note, "rota: %d files written; %d findings that must be changed are left: rota adopt %s\n",
		len(changes), left, report.Dir)
	if report.NeedsNamespace() {
		_, _ = fmt.Fprintln(note,
			"rota: outside a Pod the program has to be told its namespace: POD_NAMESPACE=default make run")
	}
	if left > 0 {
		return fmt.Errorf("adopt: %d findings must be changed by hand", left)
	}
	return nil
}

// printAdopt prints a report for people: what becomes of the controllers, and the findings file by file.
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
		fmt.Fprintf(&b, "%d of them are changed by `rota adopt --write`; --diff shows how\n", written)
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
		fmt.Fprintf(b, ", of which %d could be sharded after a look", doubtful)
	}
	if n := r.Count(adopt.Stays); n > 0 {
		fmt.Fprintf(b, ", %d as it is", n)
	}
	if n := r.Count(adopt.ByHand); n > 0 {
		fmt.Fprintf(b, ", %d to be changed by hand", n)
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

// adoptLine prints a finding. Why it matters is said once for each code.
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
	said := f.Why + f.Instead
	if first, ok := explained[said]; ok {
		if f.Level != adopt.Fine {
			fmt.Fprintf(b, "      as at %s\n", first)
		}
		return
	}
	explained[said] = "the line above"
	if f.File != "" {
		explained[said] = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	for _, text := range []string{f.Why, "write: " + f.Instead} {
		if text != "" && text != "write: " {
			fmt.Fprintln(b, wrapAt("      "+text, 116, 6))
		}
	}
}
