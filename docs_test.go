package rota_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	pagestest "github.com/rota-dev/rota/test/pages"
	"github.com/rota-dev/rota/test/require"
)

// pages returns the Markdown pages for readers, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "examples/*/README.md", "examples/dispatch/*/README.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			out[file] = string(text)
		}
	}
	if len(out) < 15 {
		t.Fatalf("found %d pages", len(out))
	}
	return out
}

var (
	codeBlock   = regexp.MustCompile("(?ms)^```.*?^```")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := notInAnchor.ReplaceAllString(strings.ToLower(linkText.ReplaceAllString(m[1], "$1")), "")
		out[strings.ReplaceAll(text, " ", "-")] = true
	}
	return out
}

// TestLinks: what a page links to in the repository exists, headings included.
func TestLinks(t *testing.T) {
	all := pages(t)
	headings := map[string]map[string]bool{}
	for name, page := range all {
		headings[name] = anchors(page)
	}
	for from, text := range all {
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			to := from
			if path != "" {
				to = filepath.Join(filepath.Dir(from), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", from, m[1], err)
			}
			if there, ok := headings[to]; ok && anchor != "" && !there[anchor] {
				t.Errorf("%s links to %s: no such heading", from, m[1])
			}
		}
	}
}

// TestMakeVerbs: each verb of make and each long check that a page shows exists.
func TestMakeVerbs(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, use := range pagestest.Commands(t, ".", "make") {
		verb := ""
		for _, arg := range use.Args {
			if verb == "" && !strings.HasPrefix(arg, "-") && arg[0] != '~' {
				verb = arg
			}
			if check, ok := strings.CutPrefix(arg, "WHAT="); ok && verb == "check" && check != "NAME" {
				verb = "check-" + check
			}
		}
		target := regexp.MustCompile(`(?m)^([a-z/-]+ )*` + regexp.QuoteMeta(verb) + `( [a-z/-]+)*:`)
		// make run is the reader's own, in a kubebuilder project.
		if strings.ToLower(verb) == verb && verb != "run" && !target.Match(makefile) {
			t.Errorf("%s shows `%s`: there is no `make %s`", use.Page, use.Line, verb)
		}
	}
}

// TestAllPages: the table "All pages" of docs/start.md has each other page of docs/. The site takes its menu from there,
// too (tools/site).
func TestAllPages(t *testing.T) {
	all := pages(t)
	_, table, _ := strings.Cut(all["docs/start.md"], "\n## All pages\n")
	for name := range all {
		if filepath.Dir(name) == "docs" && name != "docs/start.md" && !strings.Contains(table, "]("+filepath.Base(name)+")") {
			t.Errorf("%s is not in the table of docs/start.md", name)
		}
	}
}

// TestWhereToFindWhat: the files in the table "I want to change …" of docs/architecture.md exist, and what the table
// names in them is there.
func TestWhereToFindWhat(t *testing.T) {
	_, section, _ := strings.Cut(pages(t)["docs/architecture.md"], "\n## I want to change …\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, rows, _ := strings.Cut(section, "| --- | --- |\n")
	if strings.Count(rows, "\n| ") < 20 {
		t.Fatalf("no table:\n%s", rows)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	file := regexp.MustCompile(`^[\w./]+\.(go|md|yaml|txt)$|^[a-z]+(/[a-z]+)+$`)
	name := regexp.MustCompile(`^\w+$`)
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		if len(cells) != 2 {
			continue
		}
		var source string
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if file.MatchString(m[1]) {
				text, err := os.ReadFile(m[1])
				if err != nil {
					t.Errorf("%s: %v", strings.TrimPrefix(cells[0], "| "), err)
				}
				source += string(text)
			}
		}
		if source == "" {
			t.Errorf("no file in the row %s", row)
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if name.MatchString(m[1]) && !regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(source) {
				t.Errorf("%s: %s is in none of the files of its row", strings.TrimPrefix(cells[0], "| "), m[1])
			}
		}
	}
}
