package adopt

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Left counts the findings that must be changed and that --write leaves.
func (r *Report) Left() int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == Must && !f.Written {
			n++
		}
	}
	return n
}

// withoutRota is in the errors of a module that does not require Rota, or not with all that it needs.
var withoutRota = regexp.MustCompile(`(provides package|providing package|could not import|cannot find package) "?` +
	regexp.QuoteMeta(rotaPath))

// Settle returns the changes with which the module compiles, as far as it did. Edits with which it would not are left:
// their findings say why. checked is false if the module does not require Rota yet, so that nothing can be said.
func (r *Report) Settle(ctx context.Context) (changes []Change, checked bool, err error) {
	for round := 0; ; round++ {
		changes, err := r.Changes()
		if err != nil {
			return nil, false, err
		}
		checked, broken, err := r.check(ctx, changes)
		if err != nil || len(broken) == 0 {
			return changes, checked, err
		}
		if len(r.source.units) == 0 {
			return nil, true, fmt.Errorf("the changed source would not compile: %w", errors.New(broken[0].text))
		}
		r.source.dropFor(broken, changes, round >= maxRounds)
		r.source.redo()
	}
}

// notCompiling begins why an edit is left with which the source would not compile.
const notCompiling = "with it the source would not compile: "

// Dropped returns the findings whose edits Settle left.
func (r *Report) Dropped() (out []Finding) {
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Kept, notCompiling) {
			out = append(out, f)
		}
	}
	return out
}

// GetRota is the command with which the module requires Rota.
func (r *Report) GetRota() string {
	return "go get " + ctrlrtPath + " ./... && " + r.source.module.tidy()
}

// tidy is the command that puts go.mod in order, and the folder vendor if there is one.
func (m *module) tidy() string {
	if exists(filepath.Join(m.Root, "vendor", "modules.txt")) {
		return "go mod tidy && go mod vendor"
	}
	return "go mod tidy"
}

// lacksSum reports whether an error is that go.sum does not have a module which go.mod requires: `go get` would take a
// newer one of it.
func lacksSum(e packages.Error) bool { return strings.Contains(e.Msg, "missing go.sum entry") }

// NeedsNamespace reports whether the program has to be told its namespace where it is in no Pod: the manager is
// written, and its options had none.
func (r *Report) NeedsNamespace() bool {
	return !r.source.namespaced && slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Code == codeManager && f.Written
	})
}

// maxRounds is how often single edits are dropped, each of which takes a type check. Then all are.
const maxRounds = 4

// compileError is something that would not compile.
type compileError struct {
	pkg, file string
	line      int
	text      string
}

// check type-checks the module as it would be with the changes. checked is false if it does not require Rota. broken is
// what would not compile that does now.
func (r *Report) check(ctx context.Context, changes []Change) (checked bool, broken []compileError, err error) {
	overlay := map[string][]byte{}
	for _, c := range changes {
		if strings.HasSuffix(c.File, ".go") {
			overlay[c.File] = c.New
		}
	}
	if len(overlay) == 0 {
		return true, nil, nil
	}
	m, err := load(ctx, r.Dir, false, overlay)
	if err != nil {
		return false, nil, err
	}
	for _, p := range m.packages {
		for _, e := range p.Errors {
			if withoutRota.MatchString(e.Msg) {
				return false, nil, nil
			}
			known := slices.ContainsFunc(r.Broken, func(text string) bool { return strings.HasPrefix(text, p.PkgPath+": ") })
			if !known && e.Kind != packages.ListError && !strings.HasPrefix(e.Msg, "# ") {
				broken = append(broken, compileErrorOf(p.PkgPath, e))
			}
		}
	}
	return true, broken, nil
}

var position = regexp.MustCompile(`^(.+?):(\d+)(?::\d+)?$`)

func compileErrorOf(pkg string, e packages.Error) compileError {
	first, _, _ := strings.Cut(e.Msg, "\n")
	out := compileError{pkg: pkg, text: first}
	if m := position.FindStringSubmatch(e.Pos); m != nil {
		out.file = m[1]
		out.line, _ = strconv.Atoi(m[2])
	}
	return out
}

// dropFor drops the edits that errors come from: those in the same function, else in the same file, else in the same
// package, else all.
func (s *source) dropFor(broken []compileError, changes []Change, all bool) {
	if s.dropped == nil {
		s.dropped = map[*ast.CallExpr]string{}
	}
	for _, b := range broken {
		function := functionAt(b, changes)
		for _, near := range []func(unit) bool{
			func(u unit) bool { return !all && u.file == b.file && u.function == function },
			func(u unit) bool { return !all && u.file == b.file },
			func(u unit) bool { return !all && u.pkg == b.pkg },
			func(unit) bool { return true },
		} {
			found := false
			for _, u := range s.units {
				if near(u) {
					found = true
					s.dropped[u.call] = notCompiling + b.text
				}
			}
			if found {
				break
			}
		}
	}
}

// functionAt names the function that an error is in.
func functionAt(b compileError, changes []Change) string {
	text, err := os.ReadFile(b.file)
	for _, c := range changes {
		if c.File == b.file {
			text, err = c.New, nil
		}
	}
	if err != nil {
		return ""
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, b.file, text, parser.SkipObjectResolution)
	if file == nil || err != nil {
		return ""
	}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fset.PositionFor(fn.Pos(), false).Line <= b.line && b.line <= fset.PositionFor(fn.End(), false).Line {
			return nameOf(fn)
		}
	}
	return ""
}
