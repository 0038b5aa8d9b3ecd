package adopt

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestSettle: an edit with which the source would not compile is left, and its finding says why.
func TestSettle(t *testing.T) {
	r := report(t, "jumped")
	if before, _ := changes(t, r); len(before) != 1 {
		t.Fatalf("%d files are changed before the type check, want 1: it would show nothing", len(before))
	}
	left, checked, err := r.Settle(t.Context())
	if err != nil || !checked || len(left) > 0 {
		t.Fatalf("checked %v, %v, %v", checked, left, err)
	}
	kept := ""
	for _, f := range r.Findings {
		if f.Code == codeManager && !f.Written {
			kept = f.Kept
		}
	}
	if !strings.Contains(kept, "would not compile: goto done jumps over variable declaration") || r.Left() == 0 {
		t.Errorf("the manager is kept since %q", kept)
	}
}

// TestDropFor: what is dropped is as near to the error as possible.
func TestDropFor(t *testing.T) {
	calls := []*ast.CallExpr{{}, {}, {}, {}}
	s := &source{units: []unit{
		{calls[0], "/a/x.go", "a", "*r.setup"}, {calls[1], "/a/x.go", "a", "main"}, {calls[2], "/a/y.go", "a", "more"},
		{calls[3], "/b/z.go", "b", "last"},
	}}
	text := []byte("package a\n\nfunc (*r) setup() {\n}\n\nfunc main() {\n}\n\nvar x = 1\n")
	list := []Change{{File: "/a/x.go", New: text}}
	for name, test := range map[string]struct {
		pos, pkg string
		all      bool
		want     []int
	}{
		"in a method":        {"/a/x.go:4:1", "a", false, []int{0}},
		"in a function":      {"/a/x.go:6:1", "a", false, []int{1}},
		"outside functions":  {"/a/x.go:9:1", "a", false, []int{0, 1}},
		"in another file":    {"/a/other.go:1:1", "a", false, []int{0, 1, 2}},
		"in another package": {"/c/c.go:1", "c", false, []int{0, 1, 2, 3}},
		"without a place":    {"-", "b", false, []int{3}},
		"too many rounds":    {"/a/x.go:4:1", "a", true, []int{0, 1, 2, 3}},
	} {
		s.dropped = nil
		s.dropFor([]compileError{compileErrorOf(test.pkg, packages.Error{Pos: test.pos, Msg: "no"})}, list, test.all)
		var got []int
		for i, c := range calls {
			if s.dropped[c] != "" {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v is dropped, want %v", name, got, test.want)
		}
	}
}
