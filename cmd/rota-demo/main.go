// Command rota-demo runs replicas under load on a private control plane: they join, leave, crash, and are updated.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota/demo"
	"github.com/rota-dev/rota/demo/dispatch"
	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	os.Exit(run(ctx, newCommand(), os.Args[1:]))
}

// Exit codes. A run that could not be carried out also exits with exitFindings.
const (
	exitGood        = 0
	exitFindings    = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// run runs the command line and prints its error as one line.
func run(ctx context.Context, root *cobra.Command, args []string) (code int) {
	root.SetArgs(args)
	begun := false
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	cmd, err := root.ExecuteContextC(ctx)
	code = exitFindings
	switch {
	case err == nil:
		return exitGood
	case !begun || errors.As(err, new(usageError)):
		code, err = exitUsage, fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = exitInterrupted, errors.New("interrupted")
	}
	_, _ = fmt.Fprintf(root.ErrOrStderr(), "rota-demo: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	return code
}

// usageError reports a bad flag or argument.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newCommand() *cobra.Command {
	var o demo.Options
	var d dispatch.Options
	var slots int
	var dispatching, remember, migrate, canary bool
	var page, release string
	output := "text"
	cmd := &cobra.Command{
		Use:   "rota-demo",
		Short: "Run replicas under load on a real API server: they join, leave, crash and are updated",
		Long: `Starts a private Kubernetes control plane, and three replicas of the example operator as processes. Then it
changes Websites constantly while a fourth replica joins, one leaves, one is killed, and all are replaced in a rolling
restart. It takes two to five minutes once the control plane has been built.

With --dashboard it instead serves "rota dashboard", with buttons that add, stop and kill replicas. Ctrl-C ends the run
and checks it.

With --migrate it starts replicas with leader election, replaces them with members of a rota in a rolling update, and
then goes back to leader election.

With --canary it rolls out three canaries: the first fails to reconcile 2 % of the objects, the second takes three
times as long to reconcile, and the third is good. It kills a replica in each step. Use 5,000 objects: --objects 5000.

With --dispatch it starts three dispatchers and six workers, two of them in Python, instead of replicas. Dispatchers
join, leave, crash and are replaced. Workers are killed, or stopped until their takes expire.

An independent checker then compares journals with the API server's audit log. The exit status is 1 if anything was
lost, done twice, or done by the wrong replica, or if the run could not be carried out.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output != "text" && output != "json" {
				return usagef("--output %s: must be text or json", output)
			}
			if o.LeaseDuration < 0 {
				return usagef("--lease-duration %v: must be above 0", o.LeaseDuration)
			}
			o.Slots, o.Progress = slot.Count(slots), os.Stderr
			ctrl.SetLogger(logr.Discard()) // the replicas have their own
			klog.SetLogger(logr.Discard())
			if dispatching {
				for _, name := range []string{
					"audit-log", "delivery", "renew-deadline", "retry-period", "write-timeout", "baseline", "dashboard", "migrate",
					"canary",
				} {
					if cmd.Flags().Changed(name) {
						return usagef("--%s: not with --dispatch", name)
					}
				}
				d.StageOptions, d.Forget, d.Release = o.StageOptions, !remember, release
				report, err := dispatch.Run(cmd.Context(), d)
				if report == nil {
					return err
				}
				return printReport(cmd, output, report, err)
			}
			for _, name := range []string{"take-length", "remember-names", "python"} {
				if cmd.Flags().Changed(name) {
					return usagef("--%s: only with --dispatch", name)
				}
			}
			if o.Story, err = story(page, release, migrate, canary); err != nil {
				return err
			}
			if page != "" && o.Baseline == 0 {
				o.Baseline = 5 * time.Second // a person is waiting for the buttons
			}
			report, err := demo.Run(cmd.Context(), o)
			if report == nil {
				return err
			}
			return printReport(cmd, output, report, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"use this cluster, as an administrator, instead of starting a control plane")
	f.StringArrayVar(&o.AuditLogs, "audit-log", nil, "path of that cluster's audit log, if this machine has it (with "+
		"RequestResponse for websites, configmaps, deployments and services; one for each API server)")
	f.IntVar(&o.Objects, "objects", 0,
		"number of Websites (default: as many as this machine can start in half a minute, at most 2000)")
	f.Float64Var(&o.Rate, "rate", 0,
		"updates, deletions and recreations per second (default: a third of what this machine can handle, at most 50)")
	f.TextVar(&o.Delivery, "delivery", sharding.Filter,
		"how replicas get their objects: filter, slot-label or shard-selector")
	f.IntVar(&slots, "slots", slot.DefaultCount, "number of slots, a power of two")
	f.DurationVar(&o.LeaseDuration, "lease-duration", 0, "how long a replica that stops renewing keeps its slots "+
		"(default 15s)")
	f.DurationVar(&o.RenewDeadline, "renew-deadline", 0,
		"how long a replica keeps working without a renewal (default two thirds of the lease duration)")
	f.DurationVar(&o.RetryPeriod, "retry-period", 0, "time between renewals (default a fifth of the renew deadline)")
	f.DurationVar(&o.WriteTimeout, "write-timeout", 0,
		"limit on the duration of a write (default 2s, or less with a short lease)")
	f.DurationVar(&o.Baseline, "baseline", 0, "how long to measure before the first disruption (default 20s)")
	f.StringVar(&release, "release", "",
		"path of another release's rota-demo: after the rolling restart, update to its replicas, and back. With "+
			"--dispatch every second Go worker is from that release, and the rolling restart updates to its dispatchers")
	f.BoolVar(&migrate, "migrate", false,
		"migrate from leader election to a rota in a rolling update, and back")
	f.BoolVar(&canary, "canary", false, "roll out canaries instead: one that fails to reconcile 2 % of the objects, a "+
		"slow one, and a good one")
	f.StringVar(&page, "dashboard", "", "instead of the story, control the replicas with the buttons of a dashboard "+
		"until Ctrl-C; =HOST:PORT sets its address")
	f.Lookup("dashboard").NoOptDefVal = dashboard.AnyPort
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the load (default random)")
	f.StringVarP(&output, "output", "o", output, "text or json")
	f.BoolVar(&dispatching, "dispatch", false, "run dispatchers, and workers in Go and Python, instead of replicas")
	f.DurationVar(&d.TakeLength, "take-length", 0, "with --dispatch: how long a take lasts (default 6s)")
	f.BoolVar(&remember, "remember-names", true, "with --dispatch: have dispatchers remember names, for deletions")
	f.StringVar(&d.Python, "python", "", "with --dispatch: Python interpreter for the workers (default python3)")
	f.BoolVar(&o.Keep, "keep", false, "keep journals, logs and audit log, and print where they are")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "log more in the replicas; see --keep")
	cmd.AddCommand(newOperator(), newDispatcher())
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

// story returns the story that the flags choose.
func story(page, release string, migrate, canary bool) (demo.Story, error) {
	var chosen []demo.Story
	if page != "" {
		chosen = append(chosen, demo.ByHand(func(
			ctx context.Context, cfg *rest.Config, namespace, name string, replicas dashboard.Replicas,
		) (*dashboard.Server, error) {
			return dashboard.Open(ctx, page, cfg, namespace, name, replicas)
		}))
	}
	if release != "" {
		chosen = append(chosen, demo.Main(release))
	}
	if migrate {
		chosen = append(chosen, demo.Migration)
	}
	if canary {
		chosen = append(chosen, demo.Canaries(demo.Canary{}))
	}
	switch len(chosen) {
	case 0:
		return demo.Main(""), nil
	case 1:
		return chosen[0], nil
	}
	return nil, usagef("--dashboard, --release, --migrate and --canary exclude each other: choose one")
}

// report is the outcome of a demo.
type report interface {
	WriteText(w io.Writer) error
	Failures() []string
}

// printReport prints a report. It returns err, or an error if the report has failures.
func printReport(cmd *cobra.Command, output string, r report, err error) error {
	if output == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(r))
	} else {
		err = errors.Join(err, r.WriteText(cmd.OutOrStdout()))
	}
	if bad := r.Failures(); len(bad) > 0 {
		err = errors.Join(err, errors.New(strings.Join(bad, "; ")))
	}
	return err
}

// newDispatcher returns the command for the demo's dispatchers and workers.
func newDispatcher() *cobra.Command {
	return &cobra.Command{
		Use:    dispatch.Argument,
		Short:  "Run a dispatcher or a worker; only for the demo",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { os.Exit(dispatch.Main()) },
	}
}

// newOperator returns the command for the demo's replicas.
func newOperator() *cobra.Command {
	return &cobra.Command{
		Use:    "demo-operator",
		Short:  "Run a replica; only for the demo",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { os.Exit(rig.OperatorMain()) },
	}
}
