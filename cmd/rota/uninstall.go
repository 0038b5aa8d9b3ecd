package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/uninstall"
)

// uninstallTimeout bounds all of it. Labels go at 200 a second.
const uninstallTimeout = 2 * time.Hour

type uninstallOptions struct {
	target      rotaFlags
	dryRun, yes bool
	keepLabels  bool
	keeper      bool
}

func newUninstall() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall NAME",
		Short: "Remove what a rota keeps in the cluster",
		Long: `Removes a rota's fence, the labels of objects that no other rota uses, the members' reports and Leases, the
table, and the events, and checks that nothing is left. Roles and Deployments stay.

It refuses while members live or their Pods exist: scale their Deployment to 0 first.`,
		Example: `  rota uninstall website -n operators --dry-run
  rota uninstall website -n operators --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 { // what removes things does not guess
				return fmt.Errorf("give the name of one rota; got %d names", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed, and change nothing")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.keepLabels, "keep-labels", false,
		"leave the labels of objects; finding them lists all objects of each kind")
	cmd.Flags().BoolVar(&o.keeper, "keeper", false, "also remove the policy rota-fence-keeper, if no fence is left")
	return cmd
}

func (o *uninstallOptions) run(cmd *cobra.Command, args []string) error {
	cfg, rota, err := o.target.loadRota(cmd.Context(), args)
	if err != nil {
		return err
	}
	finder, err := uninstall.NewFinder(cfg, uninstall.Options{Rota: rota, KeepLabels: o.keepLabels, Keeper: o.keeper})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), uninstallTimeout)
	defer cancel()
	named := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("rota %s: %w", rota, err)
	}
	alive, err := finder.Alive(ctx)
	if err != nil {
		return named(err)
	}
	if alive.Unread != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: only Leases tell who lives, since Pods cannot be read: %s\n",
			oneLine(alive.Unread))
	}
	found, err := finder.Find(ctx)
	if err != nil {
		return named(err)
	}
	w := cmd.OutOrStdout()
	if found.Nothing() {
		printKept(w, found.Kept)
		printUnread(w, found.Unread)
		if len(found.Unread) > 0 {
			return named(errUnread)
		}
		return missingf("rota %s: there is nothing of it in the cluster", rota)
	}
	verb := "to remove"
	if o.dryRun {
		verb = "would be removed"
	}
	printRemains(w, found, verb)
	printKept(w, found.Kept)
	printUnread(w, found.Unread)
	if err := alive.Err(); err != nil {
		return named(fmt.Errorf("nothing is removed: %w", err))
	}
	if o.dryRun {
		return nil
	}
	if !o.yes {
		if err := ask(cmd, rota.Name); err != nil {
			return err
		}
	}
	// It looks again for who lives: to find labels, and to answer, may have taken long.
	removing := finder.Remove(ctx, found, func(text string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), text) })
	left, err := finder.Find(ctx)
	if err = errors.Join(removing, err); err != nil {
		return named(err)
	}
	if !left.Nothing() {
		_, _ = fmt.Fprintln(w)
		printRemains(w, left, "still there")
		return named(errors.New("some of it is there again or still: a member may have started meanwhile; look for its " +
			"Deployment, and try again"))
	}
	if len(left.Unread) > 0 {
		printUnread(w, left.Unread)
		return named(errUnread)
	}
	labels := fmt.Sprintf("and labels of %d kinds", found.Kinds)
	if o.keepLabels {
		labels = "but for labels, which were not looked at"
	}
	_, err = fmt.Fprintf(w, "\nNothing of rota %s is left: looked again for its fence, Leases, reports, table and "+
		"events, %s.\n", rota, labels)
	return err
}

// ask has a person type the rota's name.
func ask(cmd *cobra.Command, name string) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Type the name of the rota to remove all this: ")
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch answer = strings.TrimSpace(answer); {
	case answer == name:
		return nil
	case answer == "" && err != nil:
		return usagef("uninstall: nobody answers on standard input; give --yes")
	}
	return usagef("uninstall: %q is not the name of the rota, so nothing was removed", answer)
}

func printRemains(w io.Writer, r *uninstall.Remains, verb string) {
	_, _ = fmt.Fprintf(w, "%s:\n", verb)
	for _, o := range r.Objects {
		_, _ = fmt.Fprintf(w, "  %s\n", o)
	}
	for _, l := range r.Labels {
		_, _ = fmt.Fprintf(w, "  label %s of %d %s\n", l.Label, l.Objects, l.Resource.GroupResource())
	}
	if r.Events > 0 {
		_, _ = fmt.Fprintf(w, "  %s\n", counted(r.Events, "event"))
	}
}

// errUnread is the error if kinds were not searched for labels.
var errUnread = errors.New("nothing else of it is left, but not all kinds could be searched for labels: run it again " +
	"when their API server answers, or remove its APIService")

func printUnread(w io.Writer, unread []string) {
	for _, u := range unread {
		_, _ = fmt.Fprintf(w, "not searched: %s\n", u)
	}
}

func printKept(w io.Writer, kept []uninstall.Kept) {
	for _, k := range kept {
		_, _ = fmt.Fprintf(w, "stays: %s: %s\n", k.What, k.Why)
	}
}
