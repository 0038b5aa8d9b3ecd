package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/test/golden"
)

const cliPage = "../../docs/cli.md"

// TestCLIPage: docs/cli.md has every command and flag, as the commands themselves say them.
func TestCLIPage(t *testing.T) { golden.File(t, cliPage, pageOf(newCommand())) }

// pageOf writes the page.
func pageOf(root *cobra.Command) string {
	root.InitDefaultCompletionCmd()
	common := &cobra.Command{}
	(&rotaFlags{}).bind(common)
	var index, sections strings.Builder
	var without []string // of the flags for the cluster
	for _, group := range append(root.Groups(), &cobra.Group{Title: "Other:"}) {
		var links []string
		for _, c := range root.Commands() {
			if c.GroupID != group.ID || c.Hidden {
				continue
			}
			eachCommand(c, func(c *cobra.Command) {
				if c.HasSubCommands() && c.Example == "" && c.Name() != "completion" || c.Parent().Name() == "completion" {
					return // it only has subcommands, or is cobra's
				}
				path := c.CommandPath()
				links = append(links, fmt.Sprintf("[%s](#%s)", strings.TrimPrefix(path, "rota "), strings.ReplaceAll(path, " ", "-")))
				if c.Flags().Lookup("as-uid") == nil {
					without = append(without, strings.TrimPrefix(path, "rota "))
				}
				sectionOf(&sections, c, common.Flags())
			})
		}
		fmt.Fprintf(&index, "- **%s**: %s\n", strings.TrimSuffix(group.Title, ":"), strings.Join(links, " · "))
	}
	var codes, cluster strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&codes, "| %d | %s |\n", e.code, e.meaning)
	}
	common.Flags().VisitAll(func(f *pflag.Flag) { fmt.Fprintf(&cluster, " `--%s`", f.Name) })
	return fmt.Sprintf(`# The command rota

<!-- Written by go test -run TestCLIPage ./cmd/rota -update from the commands themselves. -->

All commands and flags, as help prints them. [operations.md](operations.md#the-commands) says when to use which
command, and what permissions each needs. NAME is that of a rota: by default the only one in the namespace.

%s
All commands but %s also take kubectl's flags for the cluster, %s. All take %s.

## Exit codes

| code | meaning |
| ---: | --- |
%s%s`, index.String(), strings.Join(without, ", "), strings.Join(strings.Fields(cluster.String()), ", "), "`--color`",
		codes.String(), sections.String())
}

// flagNames are flags in a text, outside of code.
var flagNames = regexp.MustCompile(`([\s(])(--[a-z-]+)`)

// sectionOf writes the section of a command, without the flags in common.
func sectionOf(b *strings.Builder, c *cobra.Command, common *pflag.FlagSet) {
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	if c.Name() == "completion" { // its text is cobra's
		long = "Prints the completion script for bash, fish, powershell or zsh. To load it, see rota completion bash --help."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n", c.CommandPath(), flagNames.ReplaceAllString(long, "$1`$2`"), c.UseLine())
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if same := common.Lookup(f.Name); f.Name != "help" && (same == nil || same.Usage != f.Usage) {
			flags.AddFlag(f)
		}
	})
	if flags.HasAvailableFlags() {
		b.WriteString("\n" + flags.FlagUsagesWrapped(102))
	}
	b.WriteString("```\n")
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll("\n"+c.Example, "\n  ", "\n")[1:])
	}
}
