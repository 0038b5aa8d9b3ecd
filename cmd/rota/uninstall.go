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

// uninstallTimeout bounds the whole command. It removes 200 labels per second.
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
		Short: "Remove a rota's objects from the cluster",
		Long: `Removes a rota's fence, the slot labels that no other rota uses, the members' reports and Leases, the table,
and the events, and checks that nothing is left. Roles and Deployments stay.

It refuses while members or their Pods are running: scale their Deployment to 0 first.`,
		Example: `  rota uninstall website -n operators --dry-run
  rota uninstall website -n operators --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 { // never guess what to remove
				return fmt.Errorf("give the name of one rota; got %d names", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed, and change nothing")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&o.keepLabels, "keep-labels", false,
		"keep the slot labels; finding them lists all objects of each kind")
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
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: only Leases show which members are alive, because Pods cannot be "+
			"read: %s\n",
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
		return missingf("rota %s: it has no objects in the cluster", rota)
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
	// Remove checks again for live members: finding labels and waiting for an answer may have taken long.
	removing := finder.Remove(ctx, found, func(text string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), text) })
	left, err := finder.Find(ctx)
	if err = errors.Join(removing, err); err != nil {
		return named(err)
	}
	if !left.Nothing() {
		_, _ = fmt.Fprintln(w)
		printRemains(w, left, "left")
		return named(errors.New("some objects are left or back: a member may have started meanwhile; look for its " +
			"Deployment, and try again"))
	}
	if len(left.Unread) > 0 {
		printUnread(w, left.Unread)
		return named(errUnread)
	}
	labels := fmt.Sprintf("and labels of %d kinds", found.Kinds)
	if o.keepLabels {
		labels = "except labels, which were not checked"
	}
	_, err = fmt.Fprintf(w, "\nNothing of rota %s is left: checked again for its fence, Leases, reports, table and "+
		"events, %s.\n", rota, labels)
	return err
}

// ask makes a person type the rota's name.
func ask(cmd *cobra.Command, name string) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Type the name of the rota to confirm: ")
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch answer = strings.TrimSpace(answer); {
	case answer == name:
		return nil
	case answer == "" && err != nil:
		return usagef("uninstall: no answer on standard input; pass --yes")
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

// errUnread is returned if some kinds could not be searched for labels.
var errUnread = errors.New("nothing else is left, but not all kinds could be searched for labels: try again when " +
	"their API server answers, or remove its APIService")

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
