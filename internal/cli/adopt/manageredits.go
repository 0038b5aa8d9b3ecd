package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// manager has the manager made by package ctrlrt: `mgr, err := ctrl.NewManager(cfg, options)` that is followed by the
// test of its error. Other forms are left to people, and kept says why.
func (e *editor) manager(m *manager) (kept string) {
	if why := e.dropped[m.CallExpr]; why != "" {
		return why
	}
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
	if kept := e.managerType(f, fn, assign); kept != "" {
		return kept
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
	e.changed(m.CallExpr)
	e.written(e.module.at(m.CallExpr), codeManager)
	return ""
}

const noTest = "the statement behind it is not if err != nil {…}"

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
	switch e.report.Managers[slices.Index(e.managers, m)].LeaderElection {
	case unknown:
		return "", nil, "whether it has leader election is not known"
	case off:
		return "", nil, ""
	}
	flag := field(m.lit, "LeaderElection")
	if e.isKnown(e.module.at(flag), codeElection) != "" {
		return "", nil, "its leader election is left, as a comment says"
	}
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
		// The old replicas need no Pod to know their namespace, so neither do the new ones.
		if name == "LeaderElectionNamespace" {
			e.namespaced = true
			fmt.Fprintf(&moved, ", Namespace: %s", f.source(kv.Value))
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
