// Command rota shows and controls the rotas in a cluster. As kubectl-rota it is a kubectl plugin: `kubectl rota`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(int(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)))
}

// run runs the command line args, including the program's name, and prints an error as one line.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) exitCode {
	root := newCommand()
	program := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	switch args = args[1:]; program {
	case "kubectl-rota":
		becomePlugin(root)
	case "kubectl_complete-rota": // kubectl passes the arguments after `kubectl rota`
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	started := false
	eachCommand(root, func(c *cobra.Command) { trackStart(c, &started) })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitGood
	}
	code := codeOf(err)
	switch {
	case !started:
		// cobra rejected the command line.
		code, err = exitUsage, fmt.Errorf("%s; see `%s --help`", oneLine(err), cmd.CommandPath())
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = exitInterrupted, errors.New("interrupted")
	}
	text := oneLine(err)
	if !strings.HasPrefix(text, "rota ") { // the text begins with a rota's name
		text = "rota: " + text
	}
	_, _ = fmt.Fprintln(errOut, text)
	return code
}

// trackStart sets started when a command starts. An error before that is a usage error.
func trackStart(c *cobra.Command, started *bool) {
	if body := c.RunE; body != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return body(cmd, args)
		}
	}
}

func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

// Groups of commands in help: the ones that people on call need come first.
const (
	groupLook  = "look"
	groupAct   = "act"
	groupSetup = "setup"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "rota",
		Short: "Run a Kubernetes controller on many replicas at once",
		Long: `Run a Kubernetes controller on many replicas at once. See what a rota in a cluster does, and change it.

NAME defaults to the only rota in the namespace. Only uninstall and fence require it.

Exit codes:
` + exitCodesText(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "See what a rota does:"},
		&cobra.Group{ID: groupAct, Title: "Change what a rota does:"},
		&cobra.Group{ID: groupSetup, Title: "Set up:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupLook: {newCheck(), newStatus(), newWho(), newDashboard(), newVerify(), newDump()},
		groupAct: {newDrain(), newUndrain(), newPause(), newResume(), newRebalance(), newPin(), newUnpin(), newCanary(),
			newUninstall()},
		groupSetup: {newFence(), newAdopt(), newSplit(), newRun(), newDispatch(), newAPIServers(), newFront()},
		"":         {newVersion()},
	} {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	root.Version = versionOf(debug.ReadBuildInfo()).String()
	root.SetVersionTemplate("{{.Version}}\n")
	bindColor(root)
	eachCommand(root, refuseUnknown)
	return root
}

// refuseUnknown makes a command that only has subcommands reject unknown ones. By default cobra prints help and exits
// with 0.
func refuseUnknown(c *cobra.Command) {
	if c.Runnable() {
		return
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("there is no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "rota "))
		if cmd.SuggestionsMinimumDistance <= 0 {
			cmd.SuggestionsMinimumDistance = 2 // as cobra does
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
		}
		return errors.New(text)
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// becomePlugin makes help and errors say `kubectl rota`.
func becomePlugin(root *cobra.Command) {
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl rota"
	eachCommand(root, func(c *cobra.Command) {
		lines := strings.Split(c.Example, "\n")
		for i, line := range lines {
			if rest, ok := strings.CutPrefix(line, "  rota "); ok {
				lines[i] = "  kubectl rota " + rest
			}
		}
		c.Example = strings.Join(lines, "\n")
	})
}
