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
	// gone counts the uses of imported packages that edits take away, by local name.
	gone map[string]int
	// wants are the import paths that edits need.
	wants []string
}

// editor edits the operator's Go files.
type editor struct {
	*source
	files map[*ast.File]*goFile
}

// edit makes the changes that are surely right, as far as there are any, and marks their findings as written.
func (s *source) edit() {
	e := &editor{s, map[*ast.File]*goFile{}}
	main := false
	for _, m := range s.managers {
		main = main || m.adopted
	}
	if len(s.managers) == 1 && !main {
		m := s.managers[0]
		kept := e.manager(m)
		main = kept == ""
		s.kept(s.module.at(m.CallExpr), kept, codeManager)
	}
	if main { // sharded controllers need such a manager
		for _, c := range s.controllers {
			e.controller(c)
		}
	}
	for _, f := range e.files {
		f.imports()
	}
}

// open returns the file of a node, or says why that is not to be edited.
func (e *editor) open(n ast.Node) (f *goFile, kept string) {
	file := e.module.file(n)
	if file == nil {
		return nil, "it is in no file"
	}
	if f := e.files[file]; f != nil {
		return f, ""
	}
	if kept := e.module.keeps(file); kept != "" {
		return nil, kept
	}
	p := e.module.inFile[file]
	edit, err := e.edits.file(e.module.name(file))
	if err != nil {
		return nil, err.Error()
	}
	f = &goFile{fileEdit: edit, file: file, info: p.TypesInfo, pkg: p.Types, gone: map[string]int{},
		base: e.module.fset.File(file.Pos()).Base()}
	e.files[file] = f
	return f, ""
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
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if pkg, ok := f.info.Uses[id].(*types.PkgName); ok {
				f.gone[pkg.Name()]++
			}
		}
		return true
	})
}

// imports adds what is wanted, and removes what no longer is used.
func (f *goFile) imports() {
	if len(f.wants) > 0 {
		anchor := f.anchor()
		var b strings.Builder
		for _, path := range f.wants {
			fmt.Fprintf(&b, "%s\n", strconv.Quote(path))
		}
		line := f.lineOf(f.at(anchor.Pos()))
		f.add(line, line, b.String())
	}
	uses := map[string]int{}
	for _, obj := range f.usesOf() {
		uses[obj.Name()]++
	}
	for _, spec := range f.file.Imports {
		name := ""
		if obj, ok := f.info.Implicits[spec].(*types.PkgName); ok {
			name = obj.Name()
		} else if spec.Name != nil {
			name = spec.Name.Name
		}
		if n := f.gone[name]; name != "" && n > 0 && uses[name] == n {
			start := f.lineOf(f.at(spec.Pos()))
			f.add(start, f.nextLine(f.at(spec.End())), "")
		}
	}
}

// usesOf lists the uses of imported packages in the file.
func (f *goFile) usesOf() (out []*types.PkgName) {
	ast.Inspect(f.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if pkg, ok := f.info.Uses[id].(*types.PkgName); ok {
				out = append(out, pkg)
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

// controller has a controller built by package ctrlrt.
func (e *editor) controller(c *controller) {
	if c.adopted || c.raw {
		return
	}
	what, _ := c.becomes()
	build := map[string]string{Sharded: "ctrlrt.NewControllerManagedBy", Duty: "ctrlrt.NewDutyControllerManagedBy"}[what]
	if build == "" {
		return
	}
	f, kept := e.open(c.CallExpr)
	if kept == "" && !f.can(e.module.enclosing(c.CallExpr), ctrlrtPath) {
		kept = noName
	}
	if kept != "" {
		e.kept(c.at, kept, codeSharded, codeDuty)
		return
	}
	f.add(f.at(c.Fun.Pos()), f.at(c.Fun.End()), build)
	f.want(ctrlrtPath)
	f.drop(c.Fun)
	e.written(c.at, codeSharded, codeDuty)
}

// noName is why a file is left where the packages cannot be imported under their names.
const noName = "the name rota or ctrlrt means something else here, or the imports are not in one list with " +
	"controller-runtime"

// kept notes at findings why they are left.
func (s *source) kept(at place, why string, codes ...string) {
	for i, f := range s.report.Findings {
		if f.File == at.File && f.Line == at.Line && slices.Contains(codes, f.Code) {
			s.report.Findings[i].Kept = why
		}
	}
}

// written marks findings as written.
func (s *source) written(at place, codes ...string) {
	for i, f := range s.report.Findings {
		if f.File == at.File && f.Line == at.Line && slices.Contains(codes, f.Code) {
			s.report.Findings[i].Written = true
		}
	}
}

// manager has the manager made by package ctrlrt: `mgr, err := ctrl.NewManager(cfg, options)` that is followed by the
// test of its error. Other forms are left to people, and kept says why.
func (e *editor) manager(m *manager) (kept string) {
	f, kept := e.open(m.CallExpr)
	if kept != "" {
		return kept
	}
	if m.lit == nil {
		return "its options were not read"
	}
	fn := e.module.enclosing(m.CallExpr)
	stmt, block := e.module.statement(m.CallExpr)
	assign, ok := stmt.(*ast.AssignStmt)
	if fn == nil || !ok || len(assign.Rhs) != 1 || len(assign.Lhs) != 2 ||
		ast.Unparen(assign.Rhs[0]) != ast.Expr(m.CallExpr) {
		return "the manager is not made in a statement mgr, err := …"
	}
	if !f.can(fn, rotaPath, ctrlrtPath) {
		return noName
	}
	next := slices.Index(block.List, stmt) + 1
	if next >= len(block.List) {
		return noTest
	}
	fails, ok := block.List[next].(*ast.IfStmt)
	if !ok || !testsError(fails, assign.Lhs[1]) {
		return noTest
	}
	config, configName, names := f.source(m.config), "", true
	if _, plain := ast.Unparen(m.config).(*ast.Ident); !plain {
		configName = f.pick(fn, "cfg", "restConfig", "rotaConfig")
		names = configName != ""
	}
	member, errName := f.pick(fn, "r", "member", "rotaMember"), e.errorFor(f, fn, assign)
	if !names || member == "" || errName == "" {
		return "no name is free for what is added"
	}
	handles := &handler{f, assign, fails, f.info.ObjectOf(assign.Lhs[1].(*ast.Ident))}
	if kept := handles.wrong(errName); kept != "" {
		return kept
	}
	options, removed, kept := e.electionEdits(f, m, stmt)
	if kept != "" {
		return kept
	}
	var b strings.Builder
	if configName != "" {
		fmt.Fprintf(&b, "%s := %s\n", configName, config)
		config = configName
	}
	for _, leftOver := range removed {
		fmt.Fprintf(&b, "_ = %s // the flag is accepted as before; no replica leads any more\n", leftOver)
	}
	fmt.Fprintf(&b, "%s, %s := rota.New(%s, rota.Options{Name: %q%s})\n%s\n", member, errName, config, e.name, options,
		handles.text(errName))
	f.add(f.at(stmt.Pos()), f.at(stmt.Pos()), b.String())
	f.add(f.at(m.Fun.Pos()), f.at(m.Fun.End()), "ctrlrt.NewManager")
	f.add(f.at(m.config.Pos()), f.at(m.config.End()), config+", "+member)
	f.want(rotaPath)
	f.want(ctrlrtPath)
	f.drop(m.Fun)
	e.written(e.module.at(m.CallExpr), codeManager)
	return ""
}

const noTest = "the statement behind it is not if err != nil {…}"

// pick returns the first name that is free.
func (f *goFile) pick(fn *ast.FuncDecl, names ...string) string {
	for _, name := range names {
		if f.free(name, fn) {
			return name
		}
	}
	return ""
}

// errorFor returns the name of the variable for the error of rota.New: the statement's own where that declares the
// manager, which it goes on doing if the error is declared before it, else another one.
func (e *editor) errorFor(f *goFile, fn *ast.FuncDecl, assign *ast.AssignStmt) string {
	mgr, ok := assign.Lhs[0].(*ast.Ident)
	err, ok2 := assign.Lhs[1].(*ast.Ident)
	if ok && ok2 && assign.Tok == token.DEFINE && f.info.Defs[mgr] != nil {
		return err.Name
	}
	return f.pick(fn, "rotaErr", "newErr")
}

// electionEdits takes leader election out of the manager's options, and returns what of it goes into rota.Options, and
// the variables that would be used no more. kept says why that cannot be done.
func (e *editor) electionEdits(f *goFile, m *manager, stmt ast.Stmt) (options string, removed []string, kept string) {
	var moved strings.Builder
	state := unknown
	if len(e.report.Managers) == 1 {
		state = e.report.Managers[0].LeaderElection
	}
	switch state {
	case unknown:
		return "", nil, "whether it has leader election is not known"
	case off:
		return "", nil, ""
	}
	flag := field(m.lit, "LeaderElection")
	id := field(m.lit, "LeaderElectionID")
	if id == nil || !simple(id.Value) {
		return "", nil, "the name of the Lease is not in the options, or comes from a call"
	}
	// What is moved is evaluated where the manager is made, and means the same there: it is in the same function, and the
	// literal's names are in scope, since it stands in the same block or around.
	literalStmt, block := e.module.statement(m.lit)
	if literalStmt != stmt && !contains(block, stmt) {
		return "", nil, "its options are made in another block"
	}
	for _, name := range []string{"LeaderElectionID", "LeaderElectionNamespace"} {
		kv := field(m.lit, name)
		if kv == nil {
			continue
		}
		if !simple(kv.Value) {
			return "", nil, name + " comes from a call"
		}
		if name := f.hidden(kv.Value, stmt); name != "" {
			return "", nil, name + " means something else where the manager is made"
		}
		fmt.Fprintf(&moved, ", %s: %s", name, f.source(kv.Value))
	}
	removed = f.onlyUsed(flag.Value)
	if name := f.hidden(flag.Value, stmt); name != "" && len(removed) > 0 {
		return "", nil, name + " means something else where the manager is made"
	}
	for _, name := range []string{"LeaderElectionID", "LeaderElectionNamespace"} {
		if kv := field(m.lit, name); kv != nil {
			f.cut(kv)
		}
	}
	f.cut(flag)
	f.drop(flag)
	e.written(e.module.at(flag), codeElection)
	return moved.String(), removed, ""
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
