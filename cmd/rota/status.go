package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/store"
	"github.com/rota-dev/rota/table"
)

// statusTimeout bounds all requests of `rota status` together.
const statusTimeout = 20 * time.Second

func newStatus() *cobra.Command {
	var target rotaFlags
	cmd := &cobra.Command{
		Use:   "status NAME -n NAMESPACE",
		Short: "Show who owns how much of a rota, and what is moving",
		Args:  oneName("status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, namespace, err := target.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			return status(ctx, cmd.OutOrStdout(), cfg, namespace, args[0])
		},
	}
	target.bind(cmd)
	return cmd
}

func status(ctx context.Context, w io.Writer, cfg *rest.Config, namespace, name string) error {
	failed := make(chan error, 1)
	kube, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name, Report: func(err error) {
		select {
		case failed <- err:
		default:
		}
	}})
	if err != nil {
		return err
	}
	defer kube.Close()
	t, err := readTable(ctx, kube)
	if err != nil {
		return fmt.Errorf("rota %s/%s: %w", namespace, name, err)
	}
	leases, err := readLeases(ctx, kube, failed)
	if err != nil {
		return fmt.Errorf("rota %s/%s: %w", namespace, name, err)
	}
	if err := printStatus(w, t, leases); err != nil {
		return err
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
		return nil, errors.New("there is no ConfigMap of that name: no member has ever started, or it was deleted and the members have not made a new one yet")
	default:
		return snapshot.Table, nil
	}
}

func readLeases(ctx context.Context, kube *store.Kubernetes, failed <-chan error) (map[string]member.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var leases map[string]member.Lease
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = kube.WatchLeases(ctx, true, nil, func(l store.Leases) {
			if leases == nil {
				leases = map[string]member.Lease{}
				for _, lease := range l.Leases {
					leases[lease.ID] = lease
				}
				cancel(nil)
			}
		})
	}()
	select {
	case <-done:
	case err := <-failed:
		cancel(err)
		<-done
	}
	if leases == nil {
		return nil, errors.Join(errors.New("cannot read the Leases"), context.Cause(ctx))
	}
	return leases, nil
}

func printStatus(to io.Writer, t *table.Table, leases map[string]member.Lease) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "epoch %d, %d slots by %s, %d members\n\n", t.Epoch, t.Slots, t.Key, len(t.Members))
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "MEMBER\tBUILD\tSLOTS\tCOMING\tGOING\tLEASE\tGATE\tSTATE")
	counts := t.Counts()
	for _, m := range t.Members {
		going, unsettled := 0, 0
		for _, r := range t.Runs {
			if r.Owner == m.ID && r.Next != "" {
				going += r.Slots.Len()
			}
			if r.Owner == m.ID && r.Unsettled {
				unsettled += r.Slots.Len()
			}
		}
		coming := t.Coming(m.ID)
		lease, gate := "missing", "-"
		if l, ok := leases[m.ID]; ok {
			lease, gate = "there", store.GateShut
			if l.Open {
				gate = store.GateOpen
			}
		}
		state := "working"
		switch {
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
		_, _ = fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", m.ID, build, counts[m.ID], coming.Len(), going, lease, gate, state)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if n := counts[""]; n > 0 {
		fmt.Fprintf(w, "\n%d slots belong to nobody\n", n)
	}
	moving := false
	for _, r := range t.Runs {
		if r.Next == "" {
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
	_, err := io.WriteString(to, w.String())
	return err
}
