package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/cli/supervise"
	"github.com/rota-dev/rota/internal/server"
	"github.com/rota-dev/rota/slot"
)

// runFenceDelay is the default fence delay of `rota run`. A process is killed a third of a lease before others take its
// slots. Then its last write may still take the rest of the 34 s that the API server gives a request.
const runFenceDelay = 30 * time.Second

func newRun() *cobra.Command {
	var target rotaFlags
	o := supervise.Options{Rota: rota.Options{FenceDelay: runFenceDelay}, Out: os.Stdout, Err: os.Stderr}
	var kinds []string
	var key, metrics string
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- [ENV=VALUE ...] COMMAND [ARG ...]",
		Short: "Run a program in any language on several replicas, each with a share of the objects",
		Long: `Runs a program that Rota is not linked into, as a member of the rota NAME. Its arguments are templates:

  {{.Selector}}              a label selector; the rota labels the objects of --kind
  {{.Ordinal}}, {{.Count}}   one process for each slot, with its number and the number of slots
  {{add 8080 .Ordinal}}      a sum, for example for a port of each process
  {{.Namespaces}}            namespaces, separated by commas, with --key Namespace
  {{.Share}}                 the socket of a live share, for a program that can change its share while it runs

When the share changes, the process gets SIGTERM, and others may work on what it gives up once its whole process group
has exited. Then it is started with the rest. With {{.Share}} it gets messages instead. Turn off the program's leader
election (docs/run.md).`,
		Example: `  rota run kustomize --kind Kustomization.kustomize.toolkit.fluxcd.io -- \
    kustomize-controller '--watch-label-selector={{.Selector}}'
  rota run metrics --slots 4 -- \
    kube-state-metrics '--shard={{.Ordinal}}' '--total-shards={{.Count}}' '--port={{add 8080 .Ordinal}}'
  rota run prometheus --key Namespace -- operator '--namespaces={{.Namespaces}}'
  rota run website --kind Website.web.example.com -- 'ROTA_SHARE={{.Share}}' node operator.js`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 1 || len(args) < 2 {
				return errors.New("give the rota's name, and the command after --: rota run NAME -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Rota.Name = args[0]
			if err := validRota(o.Rota.Name); err != nil {
				return err
			}
			if o.Rota.Key, err = slot.ParseKey(key); err != nil {
				return usagef("--key: %w", err)
			}
			if o.Command, err = supervise.ParseCommand(args[1:]); err != nil {
				return usagef("run: %w", err)
			}
			for _, text := range kinds {
				o.Kinds = append(o.Kinds, schema.ParseGroupKind(text))
			}
			cfg, namespace, err := target.load()
			if err != nil {
				return err
			}
			o.Rota.Namespace = cmp.Or(target.given(), os.Getenv("POD_NAMESPACE"), namespace)
			cfg.UserAgent = "rota-run"
			log := zap.New(zap.WriteTo(os.Stderr))
			klog.SetLogger(log)
			o.Rota.Logger = log
			if metrics != "" {
				o.Serve = func(r *rota.Rota) error { return serveMember(cmd.Context(), metrics, r) }
			}
			code, err := supervise.Run(cmd.Context(), cfg, o)
			if err == nil && code != 0 {
				err = withCode(exitCode(code), fmt.Errorf("the command exited with code %d", code))
			}
			return err
		},
	}
	target.bind(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "kind that the program works on, as KIND.GROUP; repeat for several")
	cmd.Flags().IntVar((*int)(&o.Rota.Slots), "slots", 32,
		"number of slots, a power of two; at most that many replicas work")
	cmd.Flags().StringVar(&key, "key", slot.KeyName.String(), "part of an object that is hashed: Name or Namespace")
	cmd.Flags().DurationVar(&o.StopTimeout, "stop-timeout", 20*time.Second,
		"time that the program may take to exit after SIGTERM")
	cmd.Flags().DurationVar(&o.MinUptime, "min-uptime", 10*time.Minute,
		"time that a process runs before it is restarted to give up slots to other replicas")
	cmd.Flags().StringVar(&metrics, "metrics", "", "address to serve the metrics of the member on (default: none)")
	durations := flag.NewFlagSet("", flag.ContinueOnError)
	o.Rota.BindFlags(durations)
	durations.VisitAll(func(f *flag.Flag) {
		if slices.Contains([]string{"rota-lease-duration", "rota-renew-deadline", "rota-retry-period", "rota-fence-delay"},
			f.Name) {
			cmd.Flags().AddGoFlag(f)
		}
	})
	return cmd
}

// serveMember serves a member's metrics until ctx ends.
func serveMember(ctx context.Context, address string, r *rota.Rota) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(r.Collector()); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s, err := server.Listen(ctx, server.Options{Address: address, Connections: 100, Handler: mux})
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	go func() { _ = s.Run() }()
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return nil
}
