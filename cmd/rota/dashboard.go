package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/dashboard"
)

func newDashboard() *cobra.Command {
	var target rotaFlags
	var address string
	var browse bool
	cmd := &cobra.Command{
		Use:   "dashboard [NAME]",
		Short: "Serve a live page about a rota",
		Long: `Serves a page on this machine that shows the output of rota status live, until Ctrl-C. It uses your kubeconfig,
and changes nothing.`,
		Example: `  rota dashboard website -n operators --open`,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			cfg, rota, err := target.loadRota(ctx, args)
			if err != nil {
				return err
			}
			// Report permanent errors here rather than on the page.
			if _, err := readRota(ctx, cfg, rota); err != nil {
				return err
			}
			server, err := dashboard.Open(ctx, address, cfg, rota.Namespace, rota.Name, nil)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "Dashboard of %s: %s (stop with Ctrl-C)\n", rota, server.URL())
			if server.Exposed {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: warning: other machines can reach this page. Anyone who opens it "+
					"sees what your kubeconfig may read of this rota, and can search for objects. There is no password and no TLS.\n")
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
	cmd.Flags().StringVar(&address, "address", dashboard.AnyPort,
		"HOST:PORT to listen on; port 0 picks a free one. Hosts other than localhost are open to other machines")
	cmd.Flags().BoolVar(&browse, "open", false, "open the page in the default browser")
	return cmd
}

// openBrowser opens a page in the default browser.
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
	go func() { _ = cmd.Wait() }() // the user sees if it failed
	return nil
}
