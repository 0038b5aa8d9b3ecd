package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/dispatch/app"
)

func newDispatch() *cobra.Command {
	var o struct {
		config, listen, advertise, metrics string
		target                             rotaFlags
		check, verbose                     bool
	}
	cmd := &cobra.Command{
		Use:   "dispatch --config FILE",
		Short: "Hand out keys of objects to workers in any language",
		Long: `Runs a dispatcher: a member of a rota that watches metadata, and hands out keys over HTTP. Workers take keys
from any dispatcher, reconcile the objects, and report the results (docs/dispatch.md).`,
		Example: `  rota dispatch --config dispatch.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.config == "" {
				return usagef("dispatch: --config is required: the configuration file; docs/dispatch.md describes it")
			}
			c, err := app.Load(o.config)
			if err != nil {
				return err
			}
			c.Namespace = cmp.Or(o.target.given(), c.Namespace)
			c.Server.Listen = cmp.Or(o.listen, c.Server.Listen)
			c.Server.Advertise = cmp.Or(o.advertise, c.Server.Advertise)
			c.Metrics = cmp.Or(o.metrics, c.Metrics)
			if err := c.Check(); err != nil {
				return usagef("%s: %w", o.config, err)
			}
			if o.check {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", o.config)
				return err
			}
			cfg, namespace, err := o.target.load()
			if err != nil {
				return err
			}
			c.Namespace = cmp.Or(c.Namespace, os.Getenv("POD_NAMESPACE"), namespace)
			cfg.QPS, cfg.UserAgent = -1, "rota-dispatch" // the API server has its own limits
			log := zap.New(zap.UseDevMode(o.verbose))
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			d, err := app.New(cmd.Context(), cfg, c, rota.Identity{}, log)
			if err != nil {
				return err
			}
			if err := d.Run(cmd.Context()); err != nil {
				log.Error(err, "The dispatcher stopped")
				return err
			}
			return nil
		},
	}
	o.target.bind(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&o.config, "config", "", "configuration file")
	cmd.Flags().BoolVar(&o.check, "check", false, "only check the configuration, without reading files that it refers to")
	cmd.Flags().StringVar(&o.listen, "listen", "", "address to serve workers on (default server.listen)")
	cmd.Flags().StringVar(&o.advertise, "advertise", "",
		"URL at which other dispatchers reach this one (default server.advertise)")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "address to serve metrics and probes on (default metrics)")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "log details in a readable format")
	return cmd
}
