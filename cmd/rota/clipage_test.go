package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/test/golden"
)

const cliPage = "../../docs/cli.md"

// TestCLIPage: docs/cli.md has every command and flag, as the commands themselves say them.
func TestCLIPage(t *testing.T) {
	page := pageOf(newCommand())
	golden.File(t, cliPage, page)
	// It is complete: each command that help lists has a section, and each flag that it takes a row there.
	eachCommand(newCommand(), func(c *cobra.Command) {
		if hidden(c) || c.Parent() == nil {
			return
		}
		_, section, found := strings.Cut(page, "\n## "+c.CommandPath()+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !found {
			t.Errorf("no section of %s", c.CommandPath())
		}
		_, common, _ := strings.Cut(page, "\n## Flags for the cluster\n")
		common, _, _ = strings.Cut(common, "\n## ")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if row := "--" + f.Name + "`"; !f.Hidden && !strings.Contains(section, row) && !strings.Contains(common, row) {
				t.Errorf("%s: no row of --%s", c.CommandPath(), f.Name)
			}
		})
	})
	for _, e := range exitCodes {
		if !strings.Contains(page, fmt.Sprintf("\n| %d | %s |\n", e.code, e.meaning)) {
			t.Errorf("no row of exit code %d", e.code)
		}
	}
}

func hidden(c *cobra.Command) bool { return c.Hidden || c.HasParent() && hidden(c.Parent()) }

// pageOf writes the page.
func pageOf(root *cobra.Command) string {
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString("# The command rota\n\n" +
		"<!-- Written by `go test -run TestCLIPage ./cmd/rota -update` from the commands themselves. -->\n\n" +
		"All commands and flags. [operations.md](operations.md#the-commands) says how to install `rota`, also as a plugin of\n" +
		"kubectl, when to use which command, and what permissions each needs. NAME is that of a rota. If it is left\n" +
		"out, it is the only rota in the namespace. `rota uninstall` and `rota fence` always need it.\n\n| command | |\n| --- | --- |\n")
	for _, group := range append(root.Groups(), &cobra.Group{Title: "Other:"}) {
		fmt.Fprintf(&b, "| **%s** | |\n", strings.TrimSuffix(group.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == group.ID && !hidden(c) {
				listOf(&b, c)
			}
		}
	}
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| ---: | --- |\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	common := &cobra.Command{}
	(&rotaFlags{}).bind(common)
	common.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = false })
	b.WriteString("\n## Flags for the cluster\n\n" +
		"These are kubectl's. Most commands take them, besides `--namespace`.\n\n")
	flagsOf(&b, common, nil)
	b.WriteString("\nAll commands take these:\n\n")
	flagsOf(&b, root, nil)
	for _, c := range root.Commands() {
		sectionOf(&b, c, common)
	}
	return b.String()
}

func listOf(b *strings.Builder, c *cobra.Command) {
	if c.HasSubCommands() && c.Name() != "completion" {
		for _, sub := range c.Commands() {
			listOf(b, sub)
		}
		return
	}
	fmt.Fprintf(b, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
}

// sectionOf writes the section of a command and those of its subcommands.
func sectionOf(b *strings.Builder, c *cobra.Command, common *cobra.Command) {
	if hidden(c) {
		return
	}
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	if c.Name() == "completion" { // its text is cobra's
		long = "Prints the completion script for bash, fish, powershell or zsh. `rota completion bash --help` says how to load it."
	}
	usage := c.UseLine()
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), markdown(long), usage)
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindent(c.Example))
	}
	if c.LocalNonPersistentFlags().HasAvailableFlags() {
		var skip *pflag.FlagSet
		if c.Flags().Lookup("as-uid") != nil {
			skip = common.Flags()
		}
		var own strings.Builder
		flagsOf(&own, c, skip)
		b.WriteString("\n" + own.String())
		if skip != nil {
			b.WriteString("\nAnd the [flags for the cluster](#flags-for-the-cluster).\n")
		}
	}
	if c.Name() != "completion" {
		for _, sub := range c.Commands() {
			sectionOf(b, sub, common)
		}
	}
}

// markdown has blocks that are indented in help stand as they are.
func markdown(text string) string {
	var out []string
	block := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ") && !strings.HasPrefix(strings.TrimSpace(line), "- ")
		if indented != block && (indented || line == "") {
			if block = indented; block {
				out = append(out, "```text")
			} else {
				out = append(out, "```")
			}
		}
		if len(line) > 120 && !block {
			line = wrapAt(line, 120, 0)
		}
		out = append(out, line)
	}
	if block {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// flagsOf writes a table of a command's own flags, without those in skip but for the namespace.
func flagsOf(b *strings.Builder, c *cobra.Command, skip *pflag.FlagSet) {
	b.WriteString("| flag | default | |\n| --- | --- | --- |\n")
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || skip != nil && f.Name != "namespace" && skip.Lookup(f.Name) != nil {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		if kind != "" {
			name += " " + kind
		}
		value := f.DefValue
		if value == "[]" || value == "false" || value == "" {
			value = ""
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
