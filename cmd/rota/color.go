package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

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

// paint colors text for one output, and breaks lines that are longer than its width. The zero value leaves it as it is.
type paint struct {
	on    bool
	width int
}

// newPaint returns how the command colors and breaks what it prints to w.
func newPaint(cmd *cobra.Command, w io.Writer) paint {
	p := paint{on: colored(cmd.Flag("color").Value.String(), os.Getenv, w)}
	if file, ok := w.(*os.File); ok {
		p.width, _, _ = term.GetSize(int(file.Fd())) // 0 if it is no terminal
	}
	return p
}

// print writes lines, each in as many as it takes, of which all but the first are indented by 4 more.
func (p paint) print(to io.Writer, text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " ")) + 4
		column := 0
		for word := range strings.SplitAfterSeq(line, " ") {
			bare := sgrCodes.ReplaceAllString(strings.TrimRight(word, "\n"), "")
			if p.width > 0 && column > indent && column+utf8.RuneCountInString(strings.TrimRight(bare, " ")) > p.width {
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			}
			b.WriteString(word)
			column += utf8.RuneCountInString(bare)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

var sgrCodes = regexp.MustCompile("\x1b\\[[0-9]*m")

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
