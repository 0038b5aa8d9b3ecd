package adopt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var wants = regexp.MustCompile(`(?://|#) want ([A-Za-z+? ]+)`)

// wanted reads the comments of a folder's files: `want CODE` behind a line that has such a finding, CODE+ if --write changes
// it.
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

// full is what is found in testdata/full, read once.
func full(t *testing.T) *Report {
	t.Helper()
	r, err := readFull()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var readFull = sync.OnceValues(func() (*Report, error) {
	return Run(context.Background(), Options{Dir: filepath.Join("testdata", "full"), Name: "full"})
})

// TestFindings: each line of testdata/full has the findings that its comment names, and no others.
func TestFindings(t *testing.T) {
	r := full(t)
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
	if diff := cmp.Diff(map[string]string{"configmap": Sharded, "services": Duty, "no-for": Duty, "ingress": Duty, "raw": ByHand,
		"typed": ByHand, "": ByHand, "poddisruptionbudget": ByHand}, becomes); diff != "" {
		t.Error(diff)
	}
}

// TestWritten: what is written compiles with the real packages, and reading it again leaves what people have to do.
func TestWritten(t *testing.T) {
	r := full(t)
	changes, err := r.Changes()
	if err != nil {
		t.Fatal(err)
	}
	if checked, err := r.Check(t.Context(), changes); err != nil || !checked {
		t.Fatalf("checked %v: %v", checked, err)
	}
	var diff strings.Builder
	for _, c := range changes {
		text, err := c.Diff()
		if err != nil {
			t.Fatal(err)
		}
		diff.WriteString(text)
	}
	golden(t, filepath.Join("testdata", "full.diff"), diff.String())
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
