package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// goFile is a Go file that is edited.
type goFile struct {
	*fileEdit
	file *ast.File
	info *types.Info
	pkg  *types.Package
	base int // the position of its first byte
	// gone counts the uses of imported packages that edits take away, as usesIn counts them.
	gone map[string]int
	// wants are the import paths that edits need.
	wants []string
}

func (f *goFile) at(p token.Pos) int { return int(p) - f.base }

// source returns the text of a node.
func (f *goFile) source(n ast.Node) string { return string(f.old[f.at(n.Pos()):f.at(n.End())]) }

// free reports whether a name means nothing where a function's body is, and is declared nowhere in it.
func (f *goFile) free(name string, fn *ast.FuncDecl) bool {
	if f.pkg.Scope().Lookup(name) != nil || types.Universe.Lookup(name) != nil {
		return false
	}
	if scope := f.info.Scopes[f.file]; scope != nil && scope.Lookup(name) != nil {
		return false
	}
	used := false
	if fn != nil {
		ast.Inspect(fn, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == name {
				used = used || f.info.Defs[id] != nil
			}
			return !used
		})
	}
	return !used
}

// can reports whether packages rota and ctrlrt can be named in a function of the file.
func (f *goFile) can(fn *ast.FuncDecl, paths ...string) bool {
	for _, path := range paths {
		name := path[strings.LastIndex(path, "/")+1:]
		if !f.imported(path) && !f.free(name, fn) {
			return false
		}
	}
	return f.anchor() != nil
}

func (f *goFile) imported(path string) bool {
	return slices.ContainsFunc(f.file.Imports, func(s *ast.ImportSpec) bool {
		return s.Path.Value == strconv.Quote(path) && s.Name == nil
	})
}

// anchor is the import behind which others are added: one of controller-runtime in a list.
func (f *goFile) anchor() *ast.ImportSpec {
	for _, d := range f.file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.IMPORT || !decl.Lparen.IsValid() {
			continue
		}
		for _, spec := range decl.Specs {
			if path, _ := strconv.Unquote(spec.(*ast.ImportSpec).Path.Value); strings.HasPrefix(path, runtimePath) {
				return spec.(*ast.ImportSpec)
			}
		}
	}
	return nil
}

// want notes an import that an edit needs, and drop a use of another that it takes away.
func (f *goFile) want(path string) {
	if !f.imported(path) && !slices.Contains(f.wants, path) {
		f.wants = append(f.wants, path)
	}
}

func (f *goFile) drop(n ast.Node) {
	for name, uses := range f.usesIn(n) {
		f.gone[name] += uses
	}
}

// imports adds what is wanted, and removes what no longer is used.
func (f *goFile) imports() {
	if len(f.wants) > 0 {
		anchor := f.anchor()
		var b strings.Builder
		for _, path := range f.wants {
			fmt.Fprintf(&b, "%s\n", strconv.Quote(path))
		}
		first := anchor.Pos()
		if anchor.Doc != nil { // the comment stays with its import
			first = anchor.Doc.Pos()
		}
		line := f.lineOf(f.at(first))
		f.add(line, line, b.String())
	}
	uses := f.usesIn(f.file)
	for _, spec := range f.file.Imports {
		name := ""
		if obj, ok := f.info.Implicits[spec].(*types.PkgName); ok {
			name = obj.Name()
		} else if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			path, _ := strconv.Unquote(spec.Path.Value)
			name += path
		}
		if n := f.gone[name]; name != "" && n > 0 && uses[name] == n {
			start := f.lineOf(f.at(spec.Pos()))
			f.add(start, f.nextLine(f.at(spec.End())), "")
		}
	}
}

// usesIn counts the uses of imported packages in a node, by local name; those that are imported by a dot are counted as
// a dot with their path.
func (f *goFile) usesIn(n ast.Node) map[string]int {
	out := map[string]int{}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			for name, uses := range f.usesIn(n.X) {
				out[name] += uses
			}
			return false
		case *ast.Ident:
			switch obj := f.info.Uses[n].(type) {
			case nil:
			case *types.PkgName:
				out[obj.Name()]++
			default:
				if pkg := obj.Pkg(); pkg != nil && pkg != f.pkg && obj.Parent() == pkg.Scope() {
					out["."+pkg.Path()]++
				}
			}
		}
		return true
	})
	return out
}

// lineOf returns where the line of a byte begins, nextLine where the line after it does.
func (f *goFile) lineOf(at int) int {
	for at > 0 && f.old[at-1] != '\n' {
		at--
	}
	return at
}

func (f *goFile) nextLine(at int) int {
	for at < len(f.old) && f.old[at] != '\n' {
		at++
	}
	return min(at+1, len(f.old))
}

// pick returns the first name that is free.
func (f *goFile) pick(fn *ast.FuncDecl, names ...string) string {
	for _, name := range names {
		if f.free(name, fn) {
			return name
		}
	}
	return ""
}

// hidden returns a name in an expression that means something else at a statement, or "".
func (f *goFile) hidden(x ast.Expr, at ast.Stmt) (name string) {
	scope := f.pkg.Scope().Innermost(at.Pos())
	ast.Inspect(x, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || scope == nil {
			return true
		}
		obj := f.info.Uses[id]
		if obj == nil || obj.Parent() == nil { // a field or a method
			return true
		}
		if _, there := scope.LookupParent(id.Name, at.Pos()); there != obj {
			name = id.Name
		}
		return true
	})
	return name
}

// simple reports whether an expression has no effect and costs nothing: a literal, a name, a field, or what a pointer
// points to.
func simple(x ast.Expr) bool {
	switch x := ast.Unparen(x).(type) {
	case *ast.BasicLit, *ast.Ident:
		return true
	case *ast.SelectorExpr:
		return simple(x.X)
	case *ast.StarExpr:
		return simple(x.X)
	case *ast.BinaryExpr:
		return x.Op == token.ADD && simple(x.X) && simple(x.Y)
	}
	return false
}

func contains(block *ast.BlockStmt, stmt ast.Stmt) bool {
	return block != nil && block.Pos() <= stmt.Pos() && stmt.End() <= block.End()
}

// onlyUsed returns the local variables that are used in an expression and nowhere else, so that the compiler would
// refuse them without it.
func (f *goFile) onlyUsed(x ast.Expr) (names []string) {
	here, all := map[*types.Var]int{}, map[*types.Var]int{}
	ast.Inspect(x, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			v, ok := f.info.Uses[id].(*types.Var)
			if ok && v.Kind() == types.LocalVar && (v.Pos() < x.Pos() || v.Pos() > x.End()) {
				here[v]++
			}
		}
		return true
	})
	for _, obj := range f.info.Uses {
		if v, ok := obj.(*types.Var); ok && here[v] > 0 {
			all[v]++
		}
	}
	for v, n := range here {
		if all[v] == n {
			names = append(names, v.Name())
		}
	}
	slices.Sort(names)
	return names
}

// cut takes a field out of a literal, with its line and the comment behind it if it stands alone there.
func (f *goFile) cut(kv *ast.KeyValueExpr) {
	start, end := f.at(kv.Pos()), f.at(kv.End())
	for end < len(f.old) && (f.old[end] == ' ' || f.old[end] == '\t') {
		end++
	}
	if end < len(f.old) && f.old[end] == ',' {
		end++
	}
	line := f.lineOf(start)
	rest := strings.TrimSpace(string(f.old[end:max(end, f.nextLine(end)-1)]))
	if strings.TrimSpace(string(f.old[line:start])) == "" && (rest == "" || strings.HasPrefix(rest, "//")) {
		f.add(line, f.nextLine(end), "")
		return
	}
	for end < len(f.old) && f.old[end] == ' ' {
		end++
	}
	f.add(start, end, "")
}
