// Package pages finds the command lines in the Markdown pages for readers, so that each command's own test can check
// them against the commands and flags that exist.
package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/test/require"
)

// A Command is one use of a program on a page.
type Command struct {
	Page string
	Line string   // as the page shows it
	Args []string // without the program's name, quotes and what the shell takes; placeholders such as NAME stay
}

var (
	block  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline = regexp.MustCompile("`([^`]+)`")
	// What separates commands of a shell, redirects, and what may stand before a command: a prompt and variables.
	separator = regexp.MustCompile(`\$\(|[|;()&]+|\bthen\b|\bdo\b| [12]?>&?1?`)
	before    = regexp.MustCompile(`^\s*(\$ |(timeout|watch|sleep) [\w-]+ |! )*([A-Z_]+=\S* )*(\S*/)?`)
	quotes    = strings.NewReplacer(`"`, "", "'", "", "[", "", "]", "", "`", "", "\\", "")
)

// Commands returns all uses of a program in code, of README.md, docs/, CONTRIBUTING.md and the examples in the
// repository at root.
func Commands(t testing.TB, root, program string) []Command {
	t.Helper()
	var out []Command
	for _, pattern := range []string{
		"README.md", "CONTRIBUTING.md", "docs/*.md", "examples/*/README.md", "charts/*/README.md",
	} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			page := strings.ReplaceAll(string(text), "\\\n", " ")
			var lines []string
			for _, b := range block.FindAllString(page, -1) {
				lines = append(lines, strings.Split(b, "\n")...)
			}
			for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
				lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
			}
			for _, line := range lines {
				for _, part := range separator.Split(line, -1) {
					part, _, _ = strings.Cut(part, " # ")
					words := strings.Fields(quotes.Replace(part[len(before.FindString(part)):]))
					if len(words) > 1 && words[0] == program {
						out = append(out, Command{Page: filepath.Base(file), Line: strings.TrimSpace(line), Args: words[1:]})
					}
				}
			}
		}
	}
	return out
}

// Check fails a test for each use of root on a page, with a command or a flag that does not exist.
func Check(t testing.TB, root *cobra.Command, uses []Command) {
	t.Helper()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, use := range uses {
		if wrong := check(root, use.Args); wrong != "" {
			t.Errorf("%s shows `%s`: %s", use.Page, use.Line, wrong)
		}
	}
}

// check returns what is wrong with a command line, if anything.
func check(c *cobra.Command, args []string) string {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" { // the rest is another program's
			return ""
		}
		if len(arg) > 1 && arg[0] == '-' {
			name, _, hasValue := strings.Cut(arg, "=")
			flag := lookup(c, name)
			if flag == nil {
				return c.CommandPath() + " has no flag " + name
			}
			if !hasValue && flag.NoOptDefVal == "" && len(args) > 0 {
				args = args[1:] // its value
			}
			continue
		}
		sub, _, err := c.Find([]string{arg})
		switch {
		case err == nil && sub != c:
			c = sub
		case strings.ContainsAny(arg, "…,./:") || strings.ToLower(arg) != arg: // an object, a placeholder, or output
			if !c.HasParent() {
				return ""
			}
		case c.HasSubCommands() && (!c.Runnable() || !c.HasParent()):
			return c.CommandPath() + " has no command " + arg
		}
	}
	return ""
}

func lookup(c *cobra.Command, name string) *pflag.Flag {
	c.InitDefaultHelpFlag()
	if long, ok := strings.CutPrefix(name, "--"); ok {
		return c.Flag(long)
	}
	if flag := c.Flags().ShorthandLookup(name[1:2]); flag != nil {
		return flag
	}
	return c.InheritedFlags().ShorthandLookup(name[1:2])
}
