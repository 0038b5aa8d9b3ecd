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

// paint colors text for one output, and wraps lines at the output's width. The zero value changes nothing.
type paint struct {
	on    bool
	width int
}

// newPaint returns how the command formats its output to w.
func newPaint(cmd *cobra.Command, w io.Writer) paint {
	p := paint{on: colored(cmd.Flag("color").Value.String(), os.Getenv, w)}
	if file, ok := w.(*os.File); ok {
		p.width, _, _ = term.GetSize(int(file.Fd())) // 0 if it is no terminal
	}
	return p
}

// print writes lines, wrapped if they are too long. Continuation lines are indented by 4 more.
func (p paint) print(to io.Writer, text string) error {
	if p.width > 0 {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(wrapAt(line, p.width, len(line)-len(strings.TrimLeft(line, " "))+4))
		}
		text = b.String()
	}
	_, err := io.WriteString(to, text)
	return err
}

// wrapAt breaks a line into lines of at most n columns, and indents all but the first.
func wrapAt(line string, n, indent int) string {
	var b strings.Builder
	column, spaces := 0, ""
	for word := range strings.SplitAfterSeq(line, " ") {
		bare := strings.TrimRight(word, " \n")
		width := utf8.RuneCountInString(sgrCodes.ReplaceAllString(bare, ""))
		if column > indent && column+len(spaces)+width > n {
			spaces = "\n" + strings.Repeat(" ", indent)
			column = -1
		}
		b.WriteString(spaces + bare)
		column += len(spaces) + width
		spaces = word[len(bare):]
	}
	return b.String() + spaces
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
