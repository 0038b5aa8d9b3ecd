package adopt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/astutil"
	"golang.org/x/tools/go/packages"
)

// Change is the new text of a file.
type Change struct {
	// File is the absolute path, Name the path in the report.
	File, Name string
	Old, New   []byte
}

// Diff formats a change as a patch.
func (c Change) Diff() (string, error) {
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(c.Old)), B: difflib.SplitLines(string(c.New)),
		FromFile: "a/" + c.Name, ToFile: "b/" + c.Name, Context: 3,
	})
}

// Changes returns the changes that --write makes, sorted by name. An error means a bug in this package: an edit that
// does not fit.
func (r *Report) Changes() (out []Change, err error) {
	edits, imports := map[string][]analysis.TextEdit{}, map[string][]string{}
	for _, n := range r.notes {
		name := r.module.fset.PositionFor(n.pos, false).Filename
		edits[name], imports[name] = append(edits[name], n.edits...), append(imports[name], n.imports...)
	}
	for name, list := range edits {
		if len(list) == 0 {
			continue
		}
		c := Change{File: name, Name: r.module.rel(name)}
		if c.Old, err = os.ReadFile(name); err != nil {
			return nil, err
		}
		if c.New, err = apply(r.module.fset, c.Old, list, imports[name]); err != nil {
			return nil, fmt.Errorf("%s: the change cannot be made: %w", name, err)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// apply applies edits to a file, formats it, adds imports, and removes unused ones. It keeps the line endings.
func apply(fset *token.FileSet, old []byte, edits []analysis.TextEdit, imports []string) ([]byte, error) {
	slices.SortStableFunc(edits, func(a, b analysis.TextEdit) int { return cmp.Compare(a.Pos, b.Pos) })
	edits = slices.CompactFunc(edits, func(a, b analysis.TextEdit) bool {
		return a.Pos == b.Pos && a.End == b.End && bytes.Equal(a.NewText, b.NewText)
	})
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		start, end := fset.PositionFor(e.Pos, false).Offset, fset.PositionFor(e.End, false).Offset
		if start < at || end > len(old) {
			return nil, fmt.Errorf("two edits are in one place, near byte %d", start)
		}
		b.Write(old[at:start])
		b.Write(e.NewText)
		at = end
	}
	b.Write(old[at:])
	text, err := tidyImports(b.Bytes(), imports)
	if n := bytes.Count(old, []byte("\r\n")); err == nil && n > 0 && n == bytes.Count(old, []byte("\n")) {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	return text, err
}

// tidyImports formats a file, adds imports, and removes imports of controller-runtime that became unused.
func tidyImports(src []byte, more []string) ([]byte, error) {
	src, err := format.Source(src)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, path := range more {
		astutil.AddImport(fset, file, path)
	}
	for _, spec := range slices.Clone(file.Imports) {
		name, path := "", strings.Trim(spec.Path.Value, `"`)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if (path == builderPath || path == managerPath || path == runtimePath && name != "" && name != ".") &&
			!astutil.UsesImport(file, path) {
			astutil.DeleteNamedImport(fset, file, name, path)
		}
	}
	var b bytes.Buffer
	err = format.Node(&b, fset, file)
	return b.Bytes(), err
}

// Left counts the findings that require manual changes.
func (r *Report) Left() int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == Must && !f.Written {
			n++
		}
	}
	return n
}

// NeedsNamespace reports whether the program needs its namespace set outside a Pod, because the written manager had
// none in its options.
func (r *Report) NeedsNamespace() bool {
	return slices.ContainsFunc(r.notes, func(n *note) bool {
		return n.Code == "Manager" && !slices.ContainsFunc(n.edits, func(e analysis.TextEdit) bool {
			return bytes.Contains(e.NewText, []byte(", Namespace: "))
		})
	})
}

// GetRota returns the command that adds Rota to the module.
func (r *Report) GetRota() string { return "go get " + ctrlrtPath + " ./..." }

// tidy returns the command that updates go.mod, and the vendor folder if there is one.
func (m *module) tidy() string {
	if _, err := os.Stat(filepath.Join(m.root, "vendor", "modules.txt")); err == nil {
		return "go mod tidy && go mod vendor"
	}
	return "go mod tidy"
}

func missingSum(e packages.Error) bool { return strings.Contains(e.Msg, "missing go.sum entry") }

// withoutRota matches the errors of a module that does not require Rota or all of its dependencies.
var withoutRota = regexp.MustCompile(`(provides package|providing package|could not import|cannot find package) "?` +
	regexp.QuoteMeta(rotaPath))

// ErrNoRota is returned if the changes cannot be type-checked because the module does not require Rota.
var ErrNoRota = errors.New("go.mod does not require Rota, so the changes cannot be type-checked")

// Check type-checks the module with the changes. It returns an error for the first new compile error.
func (r *Report) Check(ctx context.Context, changes []Change) error {
	overlay := map[string][]byte{}
	for _, c := range changes {
		overlay[c.File] = c.New
	}
	if len(overlay) == 0 {
		return nil
	}
	m, err := load(ctx, r.Dir, overlay)
	if err != nil {
		return err
	}
	for _, p := range m.packages {
		known := slices.ContainsFunc(r.Broken, func(text string) bool { return strings.HasPrefix(text, p.PkgPath+": ") })
		for _, e := range p.Errors {
			switch {
			case withoutRota.MatchString(e.Msg):
				return ErrNoRota
			case !known && e.Kind != packages.ListError && !strings.HasPrefix(e.Msg, "# "):
				return fmt.Errorf("the changed source would not compile: %w", e)
			}
		}
	}
	return nil
}
