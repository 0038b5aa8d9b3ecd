package adopt

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the operator's Go module, type-checked.
type module struct {
	// Path is its path, Dir the folder that was asked for: paths in the report are relative to it. Root has go.mod.
	Path, Dir, Root string
	fset            *token.FileSet
	// packages are those below Dir. tests are those that have the files of tests; their other files are not looked at.
	packages, tests []*packages.Package
	// parents has the parent of each node of all files.
	parents map[ast.Node]ast.Node
	// inFile is where each file belongs.
	inFile map[*ast.File]*packages.Package
	// selected are the versions of the modules that Rota depends on, by path.
	selected map[string]selected
}

// FolderError says that a folder has nothing that can be read: name another one.
type FolderError struct{ text string }

// Error returns what is wrong with the folder.
func (e *FolderError) Error() string { return e.text }

func wrongFolder(format string, args ...any) error { return &FolderError{fmt.Sprintf(format, args...)} }

// place is where something is.
type place struct {
	File string
	Line int
}

// loadMode asks for syntax and types of the module itself. The types of dependencies come from what the compiler has
// written, so memory is small, and the first time they are compiled.
const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule

// load type-checks all packages below a folder, and the files of their tests if those are asked for, which about
// doubles the work. overlay has files' new texts by absolute path.
func load(ctx context.Context, dir string, tests bool, overlay map[string][]byte) (*module, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(abs); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, wrongFolder("%s is a file: name the operator's folder", dir)
	}
	// Folders are not walked through links, and the go command names files by where they are.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	root, err := moduleRoot(ctx, abs)
	if err != nil {
		return nil, err
	}
	m := &module{Dir: abs, Root: root, fset: token.NewFileSet(), parents: map[ast.Node]ast.Node{},
		inFile: map[*ast.File]*packages.Package{}}
	all, err := packages.Load(&packages.Config{
		Context: ctx, Mode: loadMode, Dir: abs, Fset: m.fset, Tests: tests, Overlay: overlay,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w", dir, err)
	}
	for _, p := range all {
		switch {
		case strings.HasSuffix(p.PkgPath, ".test") || len(p.Syntax) == 0:
		case p.ID != p.PkgPath:
			m.tests = append(m.tests, p)
			m.index(p, true)
		default:
			m.packages = append(m.packages, p)
			m.index(p, false)
		}
		if p.Module != nil {
			m.Path = p.Module.Path
		}
	}
	if len(m.packages) == 0 {
		return nil, wrongFolder("%s has no Go packages: name the folder of the operator's go.mod, or one below it", dir)
	}
	if m.Path == "" {
		m.Path = m.packages[0].PkgPath
	}
	return m, nil
}

// index notes the files of a package, or those with tests alone.
func (m *module) index(p *packages.Package, tests bool) {
	for _, f := range p.Syntax {
		if tests == m.isTest(f) {
			m.inFile[f] = p
			m.parentsOf(f)
		}
	}
}

// moduleRoot returns the folder of the go.mod that holds for dir.
func moduleRoot(ctx context.Context, dir string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("the command go is not in PATH, and reading Go source needs it: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, ctx.Err()
		}
		if at == filepath.Dir(at) {
			return "", noModule(dir)
		}
	}
}

// otherOperators are files that show in what an operator is written that is not in Go.
var otherOperators = []struct{ glob, what string }{
	{"watches.yaml", "an operator of operator-sdk with Ansible or Helm"}, {"pom.xml", "a program in Java"},
	{"build.gradle*", "a program in Java or Kotlin"}, {"Cargo.toml", "a program in Rust"},
	{"pyproject.toml", "a program in Python"}, {"requirements.txt", "a program in Python"},
	{"package.json", "a program in JavaScript"},
}

func noModule(dir string) error {
	for _, other := range otherOperators {
		if found, _ := filepath.Glob(filepath.Join(dir, other.glob)); len(found) > 0 {
			return wrongFolder("%s has no go.mod, and by its %s it is %s: rota adopt reads Go. Programs in other languages get "+
				"their keys from dispatchers: docs/dispatch.md", dir, filepath.Base(found[0]), other.what)
		}
	}
	below, nested := "", errors.New("found")
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case d.IsDir() && strings.Count(strings.TrimPrefix(name, dir), string(filepath.Separator)) > 3:
			return fs.SkipDir
		case d.Name() == "go.mod":
			below = filepath.Dir(name)
			return nested
		}
		return nil
	})
	if below != "" {
		return wrongFolder("%s is in no Go module: its folder %s has one, name that", dir, below)
	}
	return wrongFolder("%s is in no Go module: there is no go.mod there or above. "+
		"Name the folder of the operator's go.mod", dir)
}

func (m *module) parentsOf(file *ast.File) {
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if len(stack) > 0 {
			m.parents[n] = stack[len(stack)-1]
		}
		stack = append(stack, n)
		return true
	})
}

// at returns where a node is in the operator's files. For files that the go command writes for cgo, that is where their
// comments //line say.
func (m *module) at(n ast.Node) place {
	p := m.fset.PositionFor(n.Pos(), false)
	if !strings.HasPrefix(p.Filename, m.Root+string(filepath.Separator)) {
		p = m.fset.Position(n.Pos())
	}
	return place{m.rel(p.Filename), p.Line}
}

// name returns the path of the file that was read, whatever comments //line say.
func (m *module) name(n ast.Node) string { return m.fset.PositionFor(n.Pos(), false).Filename }

// keeps says why a file is not to be edited; empty: it may be. Of a package with cgo, the syntax is of files that the
// go command writes.
func (m *module) keeps(f *ast.File) string {
	p := m.inFile[f]
	switch {
	case p == nil || !slices.Contains(p.GoFiles, m.name(f)):
		return "the file uses cgo, or is made by a tool when the package is built"
	case ast.IsGenerated(f):
		return "the file is generated: change what it is made from"
	}
	return ""
}

func (m *module) rel(name string) string {
	if rel, err := filepath.Rel(m.Dir, name); err == nil {
		return filepath.ToSlash(rel)
	}
	return name
}

// isTest reports whether a node is in a file of tests.
func (m *module) isTest(n ast.Node) bool {
	return strings.HasSuffix(m.name(n), "_test.go")
}

// enclosing returns the function declaration around a node, or nil.
func (m *module) enclosing(n ast.Node) *ast.FuncDecl {
	for ; n != nil; n = m.parents[n] {
		if f, ok := n.(*ast.FuncDecl); ok {
			return f
		}
	}
	return nil
}

// statement returns the statement around a node that stands in a block, and that block; nil if there is none.
func (m *module) statement(n ast.Node) (ast.Stmt, *ast.BlockStmt) {
	for ; n != nil; n = m.parents[n] {
		stmt, ok := n.(ast.Stmt)
		if block, in := m.parents[n].(*ast.BlockStmt); ok && in {
			return stmt, block
		}
	}
	return nil, nil
}

// file returns the file of a node.
func (m *module) file(n ast.Node) *ast.File {
	for ; n != nil; n = m.parents[n] {
		if f, ok := n.(*ast.File); ok {
			return f
		}
	}
	return nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// rotaName returns the rota's name: what was asked for, or the last part of a module's path.
func rotaName(asked, modulePath string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	base := path.Base(modulePath)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(base) {
		base = path.Base(path.Dir(modulePath))
	}
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(base), "-"), "-")
	if name == "" {
		return "", fmt.Errorf("no name can be made of the module's path %s: give one with --name", modulePath)
	}
	return name, nil
}
