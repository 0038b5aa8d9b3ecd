package kubernetes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/cli/check"
)

// The part of the page that is written from the records is between these lines.
const (
	pageBegin = "<!-- results: `make check WHAT=kubernetes` writes them from test/kubernetes/records -->\n"
	pageEnd   = "<!-- end -->\n"
)

// Fill returns a page with the results of records in their place.
func Fill(page string, records []Record) (string, error) {
	before, rest, ok := strings.Cut(page, pageBegin)
	_, after, ended := strings.Cut(rest, pageEnd)
	if !ok || !ended {
		return "", errors.New("the page has no place for the results")
	}
	return before + pageBegin + results(records) + pageEnd + after, nil
}

func results(records []Record) string {
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	table := func(names ...string) {
		row(names...)
		row(strings.Split(strings.Repeat("---,", len(names)-1)+"---", ",")...)
	}
	b.WriteString("\n### What works\n\n")
	table(append(append([]string{"Kubernetes", "etcd"}, Suites...),
		"demo: overlaps, foreign writes, unowned slots, missed deletions", "took over", "tests took", "demo took")...)
	for _, r := range records {
		cells := []string{r.Version, r.Etcd}
		for _, name := range Suites {
			cells = append(cells, r.suite(name))
		}
		row(append(cells, r.zeros(), fmt.Sprintf("%.1f s", r.Demo.TakenOverSeconds),
			fmt.Sprintf("%.0f s", r.TestsSeconds), fmt.Sprintf("%.0f s", r.Demo.Seconds))...)
	}
	b.WriteString("\n### What the API servers have\n\n")
	table("Kubernetes", "policies for a fence", "shard selectors", "consistent lists from the cache",
		"their further pages, too", "WatchList", "bookmarks", "`events.k8s.io/v1`", "CBOR")
	for _, r := range records {
		s := r.Server
		policies := "none"
		if s.Policies != "" {
			policies = "`" + s.Policies + "`"
		}
		row(r.Version, policies, yes(s.Shards), yes(s.Lists.cached()), yes(s.Pages.cached()),
			yes(s.WatchList), yes(s.Bookmarks), yes(s.Events), yes(s.CBOR))
	}
	b.WriteString("\n### What `rota check --pre` says of them\n\n")
	table("Kubernetes", "", "text")
	for _, r := range records {
		for _, l := range r.Pre {
			sign := map[check.Level]string{check.OK: "√", check.Warning: "‼", check.Failed: "×"}[l.Level]
			row(r.Version, sign, strings.ReplaceAll(l.Text, "|", `\|`))
		}
	}
	for _, r := range records {
		for i, failure := range r.Failures() {
			if i == 0 {
				fmt.Fprintf(&b, "\nFailed on %s:\n\n", r.Version)
			}
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(failure, "\n", " "))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// suite says how the tests of a suite ended.
func (r *Record) suite(name string) string {
	o := r.Suites[name]
	switch {
	case len(o.Failed) > 0:
		return fmt.Sprintf("**no**: %d of %d tests failed", len(o.Failed), len(o.Failed)+o.Passed)
	case o.Passed == 0:
		return "not tried"
	case name == "ShardSelector" && !r.Server.Shards:
		return fmt.Sprintf("as Filter: the selector is ignored (%d tests)", o.Passed)
	default:
		return fmt.Sprintf("yes (%d tests)", o.Passed)
	}
}

// zeros has what must not happen in the demo.
func (r *Record) zeros() string {
	if r.Demo.Objects == 0 {
		return "not run"
	}
	foreign := "?"
	if n := r.Demo.ForeignWrites; n != nil {
		foreign = strconv.Itoa(*n)
	}
	text := fmt.Sprintf("%d, %s, %d, %d", r.Demo.Overlaps, foreign, r.Demo.UnownedAtEnd, r.Demo.DeletionsMissed)
	if r.Demo.Failures != "" {
		text = "**no**: " + text
	}
	return text
}

func yes(has bool) string {
	if has {
		return "yes"
	}
	return "no"
}

// Minors returns the minor versions of records that have no failure.
func Minors(records []Record) (out []string) {
	for _, r := range records {
		if len(r.Failures()) == 0 {
			out = append(out, r.Minor)
		}
	}
	return out
}
