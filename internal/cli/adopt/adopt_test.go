package adopt

import (
	"context"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/packages"
)

var wants = regexp.MustCompile(`(?://|#) want ([A-Za-z+? ]+)`)

// wanted reads the comments of a folder's files: `want CODE` behind a line that has such a finding, CODE+ if --write
// changes it.
func wanted(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := wants.FindStringSubmatch(line); m != nil {
				for _, code := range strings.Fields(m[1]) {
					rel, _ := filepath.Rel(dir, name)
					out = append(out, fmt.Sprintf("%s:%d %s", filepath.ToSlash(rel), i+1, code))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// loaded are all packages of testdata, which is the most of the work; read once, with tests.
var loaded = sync.OnceValues(func() (*module, error) { return load(context.Background(), "testdata", true, nil) })

// within returns what was loaded below a folder of testdata, as if that were an operator of its own.
func within(t *testing.T, dir string) *module {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	m := *all
	m.Dir = filepath.Join(all.Dir, filepath.FromSlash(dir))
	m.inFile = map[*ast.File]*packages.Package{}
	pick := func(list []*packages.Package) (out []*packages.Package) {
		for _, p := range list {
			if strings.HasPrefix(p.GoFiles[0], m.Dir+string(filepath.Separator)) {
				out = append(out, p)
			}
		}
		return out
	}
	m.packages, m.tests = pick(all.packages), pick(all.tests)
	for f, p := range all.inFile {
		if slices.Contains(m.packages, p) || slices.Contains(m.tests, p) {
			m.inFile[f] = p
		}
	}
	if len(m.packages) == 0 {
		t.Fatalf("testdata/%s has no packages", dir)
	}
	return &m
}

// report reads the operator in a folder of testdata.
func report(t *testing.T, dir string) *Report {
	t.Helper()
	r, err := read(within(t, dir), path.Base(dir))
	if err != nil {
		t.Fatal(dir, err)
	}
	return r
}

// forms are the folders of testdata/forms.
func forms(t *testing.T) []string { return folders(t, "forms") }

// folders are those in one of testdata.
func folders(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join("testdata", dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		out = append(out, dir+"/"+d.Name())
	}
	return out
}

// TestFindings: each line of testdata/full has the findings that its comment names, and no others.
func TestFindings(t *testing.T) {
	r := report(t, "full")
	var got []string
	for _, f := range r.Findings {
		if f.Code == codeVersion {
			continue
		}
		mark := ""
		if f.Written {
			mark = "+"
		}
		got = append(got, fmt.Sprintf("%s:%d %s%s", f.File, f.Line, f.Code, mark))
		if f.Why == "" || !strings.HasPrefix(f.Link, Page+"#") {
			t.Errorf("%s:%d: %q does not say why it matters, or has no link", f.File, f.Line, f.Text)
		}
		if f.Level == Must && f.Instead == "" && f.Code != codePermission {
			t.Errorf("%s:%d: %q does not say what to write instead", f.File, f.Line, f.Text)
		}
	}
	slices.Sort(got)
	want := wanted(t, filepath.Join("testdata", "full"))
	for i := range want {
		want[i] = strings.TrimSuffix(want[i], "?")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"templates.yaml"}, r.Unread); diff != "" {
		t.Error(diff)
	}
	if len(r.Broken) > 0 {
		t.Error(r.Broken)
	}
	becomes := map[string]string{}
	for _, c := range r.Controllers {
		becomes[c.Name] = c.Becomes
	}
	if diff := cmp.Diff(map[string]string{"configmap": Sharded, "services": Duty, "no-for": Duty, "ingress": Duty,
		"raw":   ByHand,
		"typed": ByHand, "": ByHand, "poddisruptionbudget": ByHand}, becomes); diff != "" {
		t.Error(diff)
	}
}

// changes returns what would be written, and the patch.
func changes(t *testing.T, r *Report) (list []Change, patch string) {
	t.Helper()
	list, err := r.Changes()
	if err != nil {
		t.Fatal(r.Dir, err)
	}
	for _, c := range list {
		text, err := c.Diff()
		if err != nil {
			t.Fatal(err)
		}
		patch += text
	}
	return list, patch
}

// TestWritten: what is written in testdata/full is as the golden patch.
func TestWritten(t *testing.T) {
	_, patch := changes(t, report(t, "full"))
	golden(t, filepath.Join("testdata", "full.diff"), patch)
}

// TestCompiles: what is written in all of testdata compiles with the real packages.
func TestCompiles(t *testing.T) {
	var all []Change
	for _, dir := range append(append(forms(t), folders(t, "shapes")...), "full") {
		list, _ := changes(t, report(t, dir))
		all = append(all, list...)
	}
	if checked, broken, err := (&Report{Dir: "testdata"}).check(t.Context(), all); err != nil || !checked || len(broken) > 0 {
		t.Errorf("checked %v: %v, %v", checked, broken, err)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; UPDATE=1 writes it (-want +got):\n%s", name, diff)
	}
}
