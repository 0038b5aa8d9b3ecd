package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// colorModes are the values of --color.
var colorModes = []string{"auto", "always", "never"}

func bindColor(root *cobra.Command) {
	root.PersistentFlags().String("color", "auto",
		"auto: color on a terminal, unless NO_COLOR is set; always; never")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorModes, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if mode := cmd.Flag("color").Value.String(); !slices.Contains(colorModes, mode) {
			return fmt.Errorf("--color %s: must be auto, always or never", mode)
		}
		return nil
	}
}

// paint colors text for one output. The zero value leaves it as it is.
type paint struct{ on bool }

// newPaint returns how the command colors what it prints to w.
func newPaint(cmd *cobra.Command, w io.Writer) paint {
	return paint{colored(cmd.Flag("color").Value.String(), os.Getenv, w)}
}

func colored(mode string, env func(string) string, w io.Writer) bool {
	if mode != "auto" {
		return mode == "always"
	}
	file, ok := w.(*os.File)
	return ok && env("NO_COLOR") == "" && env("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

func (p paint) sgr(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bad(text string) string  { return p.sgr("31", text) }
func (p paint) warn(text string) string { return p.sgr("33", text) }
func (p paint) good(text string) string { return p.sgr("32", text) }
