package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/coverage"
)

const (
	// applyTimeout bounds all requests of `rota fence --apply` together.
	applyTimeout = 20 * time.Second
	// verifyTimeout bounds the wait for the fence to take effect, which takes about a second.
	verifyTimeout = 10 * time.Second
	// printTimeout bounds all requests of the optional check before printing.
	printTimeout = 5 * time.Second
)

func newFence() *cobra.Command {
	var target rotaFlags
	var account string
	var resources []string
	var apply bool
	var o fence.Options
	cmd := &cobra.Command{
		Use:   "fence NAME -n NAMESPACE --service-account NAMESPACE/NAME --resource GROUP/RESOURCE ...",
		Short: "Print or apply a policy that rejects writes from processes that are not members",
		Long: `Prints a ValidatingAdmissionPolicy and its binding. They admit the ServiceAccount's writes to the given kinds
only from Pods of the rota's members. List the sharded kinds, the owned kinds, and any others that reconciles write.

It checks the cluster first. With --apply it applies both unless it found a problem. To turn the fence off at once:
kubectl annotate configmap -n NAMESPACE NAME rota.dev/fence=off`,
		Example: `  rota fence website -n operators --service-account operators/website-operator \
    --resource web.example.com/websites --resource apps/deployments --resource services --resource configmaps`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("fence: give the name of one rota; got %d names", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Rota.Name, o.Rota.Namespace = args[0], target.given()
			if err := parseFence(&o, account, resources); err != nil {
				return err
			}
			cfg, _, err := target.load()
			if apply {
				if err != nil {
					return err
				}
				return applyFence(cmd.Context(), cmd.ErrOrStderr(), cfg, o)
			}
			text, manifestErr := fence.Manifest(o)
			if manifestErr != nil {
				return manifestErr
			}
			checkFence(cmd.Context(), cmd.ErrOrStderr(), cfg, err, o)
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	target.bind(cmd)
	f.Lookup("namespace").Usage = "namespace of the rota; required"
	f.StringVar(&account, "service-account", "", "NAMESPACE/NAME of the members' ServiceAccount")
	f.StringArrayVar(&resources, "resource", nil,
		"GROUP/RESOURCE that members write, or RESOURCE of the core group (repeatable)")
	f.BoolVar(&apply, "apply", false, "apply it (server-side) instead of printing it")
	return cmd
}

// parseFence parses the flags into o. o.Validate checks the rest.
func parseFence(o *fence.Options, account string, resources []string) error {
	if o.Rota.Namespace == "" {
		return usagef("fence: give the namespace of the rota with -n")
	}
	if account == "" {
		return usagef("fence: give the ServiceAccount of the members, as in --service-account operators/website-operator")
	}
	if len(resources) == 0 {
		return usagef("fence: give the kinds that members write, as in " +
			"--resource web.example.com/websites --resource apps/deployments")
	}
	var err error
	var sa types.NamespacedName
	if sa, err = fence.ParseServiceAccount(account); err != nil {
		return withCode(exitUsage, err)
	}
	o.ServiceAccount, o.Resources = sa, nil
	for _, text := range resources {
		r, err := fence.ParseResource(text)
		if err != nil {
			return withCode(exitUsage, err)
		}
		o.Resources = append(o.Resources, r)
	}
	return withCode(exitUsage, o.Validate())
}

func applyFence(ctx context.Context, w io.Writer, cfg *rest.Config, o fence.Options) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	cfg.Timeout = applyTimeout
	warnings, err := fence.Check(ctx, cfg, o)
	warn(w, warnings)
	if err != nil {
		return err
	}
	if err := fence.Apply(ctx, cfg, o); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "applied %s\n", o.ObjectName())
	warn(w, impersonators(ctx, cfg, o.Rota))
	ctx, cancel = context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	err = fence.Verify(ctx, cfg, o)
	if errors.Is(err, fence.ErrUnverified) {
		warn(w, []string{err.Error()})
		return nil
	}
	if err == nil {
		_, _ = fmt.Fprintln(w, "the API server rejects writes from processes that are not members")
	}
	return err
}

// impersonators returns a warning for each member whose writes the fence does not cover.
func impersonators(ctx context.Context, cfg *rest.Config, name types.NamespacedName) []string {
	all, err := coverage.NewReports(cfg, name.Namespace, name.Name)
	var reports []*coverage.Report
	if err == nil {
		reports, err = all.Read(ctx)
	}
	out := coverage.Impersonated(slices.Values(reports))
	if err != nil {
		out = append(out, fmt.Sprintf("cannot check whether members write as other users by impersonation: %v", err))
	}
	return out
}

// checkFence prints what the check of the cluster found. Manifests are printed even if no cluster can be reached.
func checkFence(ctx context.Context, w io.Writer, cfg *rest.Config, err error, o fence.Options) {
	var warnings []string
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, printTimeout)
		defer cancel()
		cfg.Timeout = printTimeout
		warnings, err = fence.Check(ctx, cfg, o)
	}
	warn(w, warnings)
	if err != nil {
		_, _ = fmt.Fprintf(w, "rota: not checked, or this cluster cannot run the fence: %v\n", err)
	}
}

func warn(w io.Writer, warnings []string) {
	for _, text := range warnings {
		_, _ = fmt.Fprintf(w, "rota: warning: %s\n", text)
	}
}
