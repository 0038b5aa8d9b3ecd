package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/table"
)

// statusTimeout bounds all requests of `rota status` together.
const statusTimeout = 20 * time.Second

func newStatus() *cobra.Command {
	var target rotaFlags
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show who owns how much of a rota, and what is moving",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			cfg, rota, err := target.loadRota(ctx, args)
			if err != nil {
				return err
			}
			return status(ctx, cmd.OutOrStdout(), cfg, rota.Namespace, rota.Name)
		},
	}
	target.bind(cmd)
	cmd.ValidArgsFunction = target.completeRotas
	return cmd
}

func status(ctx context.Context, w io.Writer, cfg *rest.Config, namespace, name string) error {
	kube, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	defer kube.Close()
	t, err := readTable(ctx, kube)
	if err != nil {
		return fmt.Errorf("rota %s/%s: %w", namespace, name, err)
	}
	leases, err := readLeases(ctx, cfg, namespace, name)
	if err != nil {
		return fmt.Errorf("rota %s/%s: %w", namespace, name, err)
	}
	if err := printStatus(w, t, leases, time.Now()); err != nil {
		return err
	}
	if err := differences(ctx, w, cfg, namespace, name, t); err != nil {
		_, _ = fmt.Fprintf(w, "\ndifferences between members: not known: %v\n", err)
	}
	if warnings, err := readWarnings(ctx, cfg, namespace, name); err != nil {
		_, _ = fmt.Fprintf(w, "\nwarnings: not known: %v\n", err)
	} else if err := printWarnings(w, warnings, time.Now()); err != nil {
		return err
	}
	line := "not known"
	if state, err := fence.Look(ctx, cfg, types.NamespacedName{Namespace: namespace, Name: name}); err == nil {
		line = state.String()
	} else {
		line += ": " + err.Error()
	}
	_, err = fmt.Fprintf(w, "\nfence: %s\n", line)
	return err
}

func readTable(ctx context.Context, kube *store.Kubernetes) (*table.Table, error) {
	snapshot, err := kube.ReadTable(ctx)
	switch {
	case err != nil:
		return nil, err
	case snapshot.Err != nil:
		return nil, snapshot.Err
	case snapshot.UID == "":
		return nil, missingf("there is no ConfigMap of that name: no member has ever started, " +
			"or it was deleted and the members have not made a new one yet")
	default:
		return snapshot.Table, nil
	}
}

// readLeases returns the members' Leases, by their holders.
func readLeases(ctx context.Context, cfg *rest.Config, namespace, name string,
) (map[string]coordinationv1.Lease, error) {
	client, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	list, err := client.Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelRota + "=" + name})
	if err != nil {
		return nil, fmt.Errorf("cannot read the Leases: %w", err)
	}
	leases := map[string]coordinationv1.Lease{}
	for _, l := range list.Items {
		leases[ptr.Deref(l.Spec.HolderIdentity, "")] = l
	}
	return leases, nil
}

// lease returns how long ago a Lease was renewed, by the clocks of its member's machine and of this one, and whether
// that is longer than the Lease lasts.
func lease(l coordinationv1.Lease, now time.Time) (text string, over bool) {
	if l.Spec.RenewTime == nil {
		return "never renewed", false
	}
	age := max(0, now.Sub(l.Spec.RenewTime.Time))
	lasts := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
	return fmt.Sprintf("%v ago", age.Round(time.Second)), lasts > 0 && age > lasts
}

// differences prints the settings in which members differ, by what they report.
func differences(ctx context.Context, w io.Writer, cfg *rest.Config, namespace, name string, t *table.Table) error {
	told, err := coverage.NewReports(cfg, namespace, name)
	if err != nil {
		return err
	}
	reports, err := told.Read(ctx)
	if err != nil {
		return err
	}
	return printDifferences(w, coverage.DifferencesIn(t, reports))
}

func printDifferences(w io.Writer, found []coverage.Difference) error {
	if len(found) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("\ndifferences between members " +
		"(a rollout may bring them, and ends them, unless a reason is given):\n")
	for _, d := range found {
		text.WriteString("  " + d.String() + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func printStatus(to io.Writer, t *table.Table, leases map[string]coordinationv1.Lease, now time.Time) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "epoch %d, %d slots by %s, %d members\n\n", t.Epoch, t.Slots, t.Key, len(t.Members))
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "MEMBER\tBUILD\tSLOTS\tCOMING\tGOING\tLEASE\tGATE\tSTATE")
	counts := t.Counts()
	for _, m := range t.Members {
		going, unsettled := 0, 0
		for _, r := range t.Runs {
			if t.IsDuty(r.Slots.First) {
				continue
			}
			if r.Owner == m.ID && r.Next != "" {
				going += r.Slots.Len()
			}
			if r.Owner == m.ID && r.Unsettled {
				unsettled += r.Slots.Len()
			}
		}
		coming := t.Coming(m.ID).Intersect(t.Slots.All())
		renewed, gate, over := "missing", "-", false
		if l, ok := leases[m.ID]; ok {
			renewed, over = lease(l, now)
			if gate = names.GateOpen; l.Annotations[names.AnnotationGate] == names.GateShut {
				gate = names.GateShut
			}
		}
		state := "working"
		switch {
		case over:
			state = "not renewing its Lease"
		case m.Leaving:
			state = "leaving"
		case unsettled > 0:
			state = fmt.Sprintf("activating %d", unsettled)
		case counts[m.ID] == 0:
			state = "waiting for slots"
		}
		build := m.Build
		if build == "" {
			build = "-"
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n",
			m.ID, build, counts[m.ID], coming.Len(), going, renewed, gate, state)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if n := counts[""]; n > 0 {
		fmt.Fprintf(w, "\n%d slots belong to nobody\n", n)
	}
	if n := len(t.Gone); n > 0 {
		fmt.Fprintf(w, "\n%d deletions were left to the next owners of slots that are activating\n", n)
	}
	moving := false
	for _, r := range t.Runs {
		if r.Next == "" || t.IsDuty(r.Slots.First) {
			continue
		}
		if !moving {
			w.WriteString("\nmoving:\n")
			moving = true
		}
		stage := "warming"
		if r.Ready {
			stage = "ready, draining or waiting for its turn"
		}
		fmt.Fprintf(w, "  %s  %s -> %s (%s)\n", r.Slots, r.Owner, r.Next, stage)
	}
	if err := printDuties(w, t); err != nil {
		return err
	}
	_, err := io.WriteString(to, w.String())
	return err
}

// printDuties prints who has which duty.
func printDuties(w io.Writer, t *table.Table) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := "\nDUTY\tMEMBER\tSTATE\n"
	for _, name := range slices.Sorted(slices.Values(t.Duties)) {
		s, ok := t.DutySlot(name)
		if !ok {
			continue
		}
		_, _ = io.WriteString(out, title)
		title = ""
		state := "working"
		switch r := t.At(s); {
		case r.Next != "":
			state = "moving to " + r.Next
		case r.Owner == "":
			state = "nobody does it"
		case r.Unsettled:
			state = "activating"
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\n", name, cmp.Or(t.At(s).Owner, "-"), state)
	}
	return out.Flush()
}
