// Command rota shows what a rota does, on a control plane of its own, and inspects the rotas in a cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "rota:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rota",
		Short:         "Run a Kubernetes controller on many replicas at once",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newDemo(), newOperator(), newDemoDispatch(), newStatus(), newVerify(), newLabels(), newFence(),
		newSplit(), newDispatch(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), version())
		},
	}
}

// version is the module's, and the commit where Go knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	words := []string{info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			words = append(words, s.Value)
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}
