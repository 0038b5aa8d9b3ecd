package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/dashboard"
	"github.com/rota-dev/rota/internal/view"
)

// anyPort is the default address of dashboards.
const anyPort = "127.0.0.1:0"

func newDashboard() *cobra.Command {
	var target rotaFlags
	var address string
	var browse bool
	cmd := &cobra.Command{
		Use:   "dashboard [NAME]",
		Short: "Serve a page that shows a rota as it changes",
		Long: `Serves a page on this machine, until Ctrl-C, that shows what "rota status" knows of a rota as it changes: who
owns which slots, what moves, how members do, and what is wrong. It reads with your own kubeconfig, and changes
nothing.`,
		Example: `  rota dashboard website -n operators --open`,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			cfg, rota, err := target.loadRota(ctx, args)
			if err != nil {
				return err
			}
			// What can never work is said here and now, instead of on the page.
			if _, err := readRota(ctx, cfg, rota); err != nil {
				return err
			}
			server, err := openDashboard(ctx, address, cfg, rota.Namespace, rota.Name, nil)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "Dashboard of %s: %s (Ctrl-C ends it)\n", rota, server.URL())
			if server.Exposed {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: warning: other machines can reach this page. Whoever opens it sees "+
					"what your kubeconfig may read of this rota, and may search for objects. There is no password and no TLS.\n")
			}
			if browse {
				if err := openBrowser(ctx, server.URL()); err != nil {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: no browser was opened: %v\n", err)
				}
			}
			return server.Run(ctx)
		},
	}
	target.bind(cmd)
	cmd.ValidArgsFunction = target.completeRotas
	cmd.Flags().StringVar(&address, "address", anyPort,
		"where to listen, as HOST:PORT; port 0 is a free one. Other machines can reach any host but localhost")
	cmd.Flags().BoolVar(&browse, "open", false, "open the page in the default browser")
	return cmd
}

// openDashboard opens a dashboard of a rota. Without replicas it has no buttons.
func openDashboard(
	ctx context.Context, address string, cfg *rest.Config, namespace, name string, replicas dashboard.Replicas,
) (*dashboard.Server, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 50, 300 // as kubectl
	reader, err := view.NewReader(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, reader.Close)
	finder, err := view.NewFinder(cfg)
	if err != nil {
		return nil, err
	}
	return dashboard.Listen(ctx, address, dashboard.Options{
		Namespace: namespace, Name: name, Replicas: replicas,
		Who: func(ctx context.Context, kind, in, object string) (any, error) {
			r, err := reader.Read(ctx)
			if err != nil {
				return nil, err
			}
			w, err := finder.Who(ctx, r, kind, in, object)
			if errors.Is(err, view.ErrNoKind) || errors.Is(err, view.ErrBadName) {
				return nil, dashboard.QuestionError{Err: err}
			}
			return w, err
		},
		Watch: func(ctx context.Context, tell func(*view.Rota, error)) error {
			return view.Watch(ctx, cfg, namespace, name, reader.Read, tell)
		},
	})
}

// openBrowser has the system open a page in the default browser.
func openBrowser(ctx context.Context, url string) error {
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], url)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // whether the browser liked it is seen there
	return nil
}
