package adopt

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/astutil"
)

// edit makes the edits that are certainly correct, and marks their findings as written. If it cannot make an edit that
// it makes elsewhere, the finding explains why.
func (s *scan) edit() {
	var left []*manager
	for _, m := range s.managers {
		if m.note.Known == "" {
			left = append(left, m)
		}
	}
	for _, m := range left {
		switch {
		case m.adopted:
			continue
		case slices.ContainsFunc(left, func(m *manager) bool { return m.adopted }):
			m.note.Kept = "another one is made by ctrlrt already; rota:ignore Manager says that this one stays"
		case len(left) > 1:
			m.note.Kept = "there are several: rota:ignore Manager says which ones stay, and the last one is written"
		default:
			s.settle(m.note, m.syntax.Pos(), func(e *editor) string { return e.manager(m) })
			if m.leaderAt != nil {
				m.leaderAt.Written = m.note.Written && m.election != off
			}
		}
	}
	for _, c := range s.controllers {
		switch c.note.Code {
		case "ShardedController":
			s.editController(c, "NewControllerManagedBy")
		case "DutyController":
			s.editController(c, "NewDutyControllerManagedBy")
		}
	}
}

// editController switches a controller to package ctrlrt's builder, if its managers are switched.
func (s *scan) editController(c *controller, build string) {
	made, all := s.managersOf(c.call.Call.Args[0])
	if !all {
		made = s.managers
	}
	stays := func(m *manager) bool { return m.note.Known != "" }
	switch {
	case all && !slices.ContainsFunc(made, func(m *manager) bool { return !stays(m) }):
		c.note.Level, c.note.Known = Fine, "its manager stays: "+made[0].note.Known
	case len(made) == 0:
		c.note.Kept = "no manager was found on which it is built"
	case slices.ContainsFunc(made, func(m *manager) bool { return stays(m) || !m.adopted && !m.note.Written }):
		c.note.Kept = "it may be built on a manager that is left as it is"
	case c.note.Known == "":
		s.settle(c.note, c.pos, func(e *editor) string {
			name, kept := e.name(ctrlrtPath)
			if kept == "" {
				fun := s.calls[c.call.Pos()].Fun
				e.replace(fun.Pos(), fun.End(), name+"."+build)
			}
			return kept
		})
	}
}

// settle makes the edits for a finding, or records why it cannot.
func (s *scan) settle(n *note, pos token.Pos, edit func(*editor) string) {
	e := &editor{scan: s}
	e.file, e.info = s.fileOf(pos)
	name := s.fset.PositionFor(pos, false).Filename
	src, err := os.ReadFile(name)
	e.src = src
	switch {
	case err != nil:
		n.Kept = err.Error()
	case strings.HasSuffix(name, ".cgo1.go"):
		n.Kept = "the file uses cgo"
	case ast.IsGenerated(e.file):
		n.Kept = "the file is generated: change what it is made from"
	default:
		n.Kept = edit(e)
		if n.Written = n.Kept == ""; n.Written {
			n.edits, n.imports = e.edits, e.imports
		}
	}
}

// editor collects the edits of one finding in a file.
type editor struct {
	*scan
	file    *ast.File
	info    *types.Info
	src     []byte
	edits   []analysis.TextEdit
	imports []string
}

func (e *editor) replace(from, to token.Pos, text string) {
	e.edits = append(e.edits, analysis.TextEdit{Pos: from, End: to, NewText: []byte(text)})
}

func (e *editor) offset(pos token.Pos) int { return int(pos - e.file.FileStart) }

func (e *editor) source(n ast.Node) string { return string(e.src[e.offset(n.Pos()):e.offset(n.End())]) }

// name returns the name under which a package is or will be imported.
func (e *editor) name(path string) (name, kept string) {
	name = path[strings.LastIndex(path, "/")+1:]
	for _, spec := range e.file.Imports {
		switch at, _ := strconv.Unquote(spec.Path.Value); {
		case at == path && spec.Name != nil:
			return spec.Name.Name, ""
		case at == path:
			return name, ""
		}
	}
	taken := false
	ast.Inspect(e.file, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		taken = taken || ok && id.Name == name && (e.info.Defs[id] != nil || e.info.Uses[id] != nil)
		return true
	})
	if taken {
		return "", "the name " + name + " means something else here"
	}
	e.imports = append(e.imports, path)
	return name, ""
}

// manager switches a manager to package ctrlrt, if the source has the form `mgr, err := ctrl.NewManager(cfg, options)`
// followed by an error check. Otherwise it returns why not.
func (e *editor) manager(m *manager) (kept string) {
	if m.lit == nil {
		return "its options were not read"
	}
	path, _ := astutil.PathEnclosingInterval(e.file, m.syntax.Pos(), m.syntax.End())
	assign, block, fn := around(path)
	if assign == nil || assign.Tok != token.DEFINE || len(assign.Lhs) != 2 || len(assign.Rhs) != 1 ||
		ast.Unparen(assign.Rhs[0]) != m.syntax {
		return "the manager is not made in a statement mgr, err := …"
	}
	mgr, _ := assign.Lhs[0].(*ast.Ident)
	err, _ := assign.Lhs[1].(*ast.Ident)
	if mgr == nil || err == nil || e.info.Defs[mgr] == nil {
		return "the manager is not made in a statement mgr, err := …"
	}
	next := slices.Index(block.List, ast.Stmt(assign)) + 1
	var fails *ast.IfStmt
	if next < len(block.List) {
		fails, _ = block.List[next].(*ast.IfStmt)
	}
	if fails == nil || fails.Init != nil || fails.Else != nil || types.ExprString(fails.Cond) != err.Name+" != nil" {
		return "the statement behind it is not if err != nil {…}"
	}
	if kept := e.typeNeeded(fn, mgr, fails); kept != "" {
		return kept
	}
	options, removed, kept := e.election(m)
	if kept != "" {
		return kept
	}
	rota, kept := e.name(rotaPath)
	if kept != "" {
		return kept
	}
	ctrlrt, kept := e.name(ctrlrtPath)
	if kept != "" {
		return kept
	}
	member := e.free(fn, "r", "member", "rotaMember")
	cfg, config := m.syntax.Args[0], e.source(m.syntax.Args[0])
	var b strings.Builder
	if _, plain := ast.Unparen(cfg).(*ast.Ident); !plain {
		config = e.free(fn, "cfg", "restConfig", "rotaConfig")
		fmt.Fprintf(&b, "%s := %s\n", config, e.source(cfg))
	}
	if member == "" || config == "" {
		return "no name is free for what is added"
	}
	if removed != "" {
		fmt.Fprintf(&b, "_ = %s // the flag is still accepted; there is no leader any more\n", removed)
	}
	fmt.Fprintf(&b, "%s, %s := %s.New(%s, %s.Options{Name: %q%s})\n%s\n", member, err.Name, rota, config, rota,
		e.scan.name, options,
		e.handler(fails))
	e.replace(assign.Pos(), assign.Pos(), b.String())
	e.replace(m.syntax.Fun.Pos(), m.syntax.Fun.End(), ctrlrt+".NewManager")
	e.replace(cfg.Pos(), cfg.End(), config+", "+member)
	return ""
}

// around returns a call's assignment, block and function.
func around(path []ast.Node) (assign *ast.AssignStmt, block *ast.BlockStmt, fn *ast.FuncDecl) {
	for i, n := range path {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if b, ok := path[i+1].(*ast.BlockStmt); ok && assign == nil {
				assign, block = n, b
			}
		case *ast.FuncDecl:
			fn = n
		}
	}
	if fn == nil {
		return nil, nil, nil
	}
	return assign, block, fn
}

// typeNeeded returns why the manager's variable cannot have the type that ctrlrt.NewManager returns. Its methods may be
// called, and it may be an argument or a result.
func (e *editor) typeNeeded(fn *ast.FuncDecl, mgr *ast.Ident, fails *ast.IfStmt) (kept string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || e.info.Uses[id] != e.info.Defs[mgr] {
			return true
		}
		path, _ := astutil.PathEnclosingInterval(e.file, id.Pos(), id.End())
		fits := false
		switch parent := path[1].(type) {
		case *ast.SelectorExpr, *ast.ReturnStmt, *ast.KeyValueExpr, *ast.CompositeLit:
			fits = true
		case *ast.CallExpr:
			fun := ast.Unparen(parent.Fun)
			if sel, ok := fun.(*ast.SelectorExpr); ok {
				fun = sel.Sel
			}
			id, named := fun.(*ast.Ident)
			fits = !named || e.info.Instances[id].Type == nil
		}
		switch {
		case fails.Pos() <= id.Pos() && id.Pos() < fails.End():
			kept = "how its error is handled uses " + mgr.Name
		case !fits:
			kept = fmt.Sprintf("%s is used in line %d in a way that the manager of ctrlrt may not fit",
				mgr.Name, e.fset.Position(id.Pos()).Line)
		}
		return kept == ""
	})
	return kept
}

// free returns the first name that a function does not use.
func (e *editor) free(fn *ast.FuncDecl, names ...string) string {
	used := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			used[id.Name] = true
		}
		return true
	})
	for _, name := range names {
		if !used[name] {
			return name
		}
	}
	return ""
}

// handler returns the statement that handles the error, adapted for rota.New.
func (e *editor) handler(fails *ast.IfStmt) string {
	var message *ast.BasicLit
	ast.Inspect(fails.Body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && message == nil {
			message = lit
		}
		return true
	})
	if message == nil || strings.Contains(message.Value, "%") {
		return e.source(fails)
	}
	return string(e.src[e.offset(fails.Pos()):e.offset(message.Pos())]) + strconv.Quote("Failed to set up the rota") +
		string(e.src[e.offset(message.End()):e.offset(fails.End())])
}

// election removes leader election from the manager's options, and returns the parts for rota.Options. removed is the
// flag's expression, if it would become unused.
func (e *editor) election(m *manager) (moved, removed, kept string) {
	flag := field(m.lit, "LeaderElection")
	switch {
	case m.election == off:
		return "", "", ""
	case m.leaderAt.Known != "":
		return "", "", "its leader election is left, as a comment says"
	case field(m.lit, "LeaderElectionID") == nil:
		return "", "", "the name of the Lease is not in the options"
	}
	var b strings.Builder
	for _, name := range []string{"LeaderElectionID", "LeaderElectionNamespace"} {
		kv := field(m.lit, name)
		if kv == nil {
			continue
		}
		calls := false
		ast.Inspect(kv.Value, func(n ast.Node) bool {
			_, call := n.(*ast.CallExpr)
			calls = calls || call
			return true
		})
		if calls {
			return "", "", name + " comes from a call"
		}
		if name == "LeaderElectionNamespace" { // works outside a Pod, as before
			b.WriteString(", Namespace: " + e.source(kv.Value))
		}
		fmt.Fprintf(&b, ", %s: %s", name, e.source(kv.Value))
		e.cut(kv)
	}
	ast.Inspect(flag.Value, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && e.info.Uses[id] != nil {
			uses := 0
			for _, obj := range e.info.Uses {
				if v, ok := obj.(*types.Var); ok && obj == e.info.Uses[id] && v.Kind() == types.LocalVar {
					uses++
				}
			}
			if uses == 1 {
				removed = e.source(flag.Value)
			}
		}
		return true
	})
	e.cut(flag)
	return b.String(), removed, ""
}

// cut removes a field from a literal, with its line if it is alone on it.
func (e *editor) cut(kv *ast.KeyValueExpr) {
	from, to := e.offset(kv.Pos()), e.offset(kv.End())
	if to < len(e.src) && e.src[to] == ',' {
		to++
	}
	line := bytes.LastIndexByte(e.src[:from], '\n') + 1
	end := to + bytes.IndexByte(e.src[to:], '\n') + 1
	rest := bytes.TrimSpace(e.src[to:end])
	if len(bytes.TrimSpace(e.src[line:from])) == 0 && (len(rest) == 0 || bytes.HasPrefix(rest, []byte("//"))) {
		from, to = line, end
	}
	e.replace(e.file.FileStart+token.Pos(from), e.file.FileStart+token.Pos(to), "")
}
