package adopt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/packages"
)

// TestShapes: reconcilers are given, list, keep and start things in many ways. Each line of testdata/shapes has the
// findings that its comment names, and no others, but for those that most of these short operators have.
func TestShapes(t *testing.T) {
	for _, dir := range folders(t, "shapes") {
		var got []string
		r := report(t, dir)
		if len(r.Broken) > 0 {
			t.Errorf("%s: %v", dir, r.Broken)
		}
		for _, f := range r.Findings {
			mark := ""
			switch {
			case f.File == "" || f.Code != codeUnseen && slices.Contains(quiet, f.Code):
				continue
			case f.Written:
				mark = "+"
			case f.Level == Look && slices.Contains(eitherLevel, f.Code):
				mark = "?"
			}
			got = append(got, fmt.Sprintf("%s:%d %s%s", f.File, f.Line, f.Code, mark))
		}
		slices.Sort(got)
		got = slices.Compact(got)
		if diff := cmp.Diff(wanted(t, filepath.Join("testdata", filepath.FromSlash(dir))), got); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", dir, diff)
		}
	}
}

// eitherLevel are codes whose findings may be to look at. Such a one has a ? in the comment.
var eitherLevel = []string{codeRawSource, codeUnseen, codeByHand, codeElection}

// TestNotSeen: what is not followed is said, and no program passes with nothing found.
func TestNotSeen(t *testing.T) {
	for dir, want := range map[string]string{
		"shapes/values":  "must: there is a program, and no place makes a manager; look: no place builds a controller",
		"shapes/sources": "look: no place makes a manager",
		"shapes/late":    "",
	} {
		var got []string
		for _, f := range report(t, dir).Findings {
			if f.Code == codeUnseen && f.File == "" {
				got = append(got, fmt.Sprintf("%s: %s", f.Level, f.Text))
			}
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: %q, want %q", dir, text, want)
		}
	}
}

// TestReasons: what a report says of a controller names what was found.
func TestReasons(t *testing.T) {
	reasons := map[string]string{}
	for _, dir := range folders(t, "shapes") {
		for _, c := range report(t, dir).Controllers {
			reasons[strings.TrimPrefix(dir, "shapes/")+" "+c.Name] = c.Becomes + ": " + c.Reason
		}
	}
	for name, want := range map[string]string{
		"reconcilers job": "duty: its reconciler was not found: given",
		"lists pod":       "duty: it lists Pod, its own kind",
		"lists job":       "duty: it lists a kind that is not in the source, and may be its own",
		"lists hidden":    "duty: its kind is not in the source, and may be v1.Node, which it lists",
		"memory secret":   "duty: it keeps something in memory: seen (setup.go:",
		"whole pod":       "stays: ",
	} {
		if !strings.HasPrefix(reasons[name], want) {
			t.Errorf("%s: %q, want %q", name, reasons[name], want)
		}
	}
}

// TestBroken: a controller of a package that does not compile is not sharded, since something may not be seen.
func TestBroken(t *testing.T) {
	m := within(t, "shapes/late")
	p := *m.packages[0]
	p.Errors = []packages.Error{{Msg: "no such package"}}
	m.packages[0] = &p
	r, err := read(m, "late")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Controllers) == 0 || r.Count(Duty) != len(r.Controllers) {
		t.Errorf("%+v", r.Controllers)
	}
}
