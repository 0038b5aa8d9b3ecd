package adopt

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// handler is the statement that handles an error, as text for another error: that of rota.New, before there is a
// manager.
type handler struct {
	*goFile
	assign *ast.AssignStmt
	fails  *ast.IfStmt
	err    types.Object
}

// testsError reports whether a statement is `if err != nil {…}` without more.
func testsError(s *ast.IfStmt, err ast.Expr) bool {
	cond, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || s.Init != nil || s.Else != nil || cond.Op != token.NEQ {
		return false
	}
	x, ok := cond.X.(*ast.Ident)
	want, ok2 := err.(*ast.Ident)
	y, ok3 := cond.Y.(*ast.Ident)
	return ok && ok2 && ok3 && y.Name == "nil" && x.Name == want.Name
}

// sayers are packages that log, make errors or print.
var sayers = []string{"errors", "fmt", "log", "log/slog", "github.com/pkg/errors", "github.com/go-logr/logr",
	"github.com/sirupsen/logrus", "go.uber.org/zap", "k8s.io/klog", "k8s.io/klog/v2", runtimePath + "/pkg/log"}

// says reports whether a call does no more than to log, to make an error, to panic or to end the program.
func (h *handler) says(c *ast.CallExpr) bool {
	name, ok := calleeIn(h.info, c.Fun)
	switch {
	case !ok:
		return false
	case name.pkg == "":
		builtin := types.Universe.Lookup(name.name) == objectOf(h.info, c.Fun)
		return builtin && name.name == "panic" || name.name == "Error" && len(c.Args) == 0
	case name.pkg == "os":
		return name.name == "Exit"
	}
	return slices.Contains(sayers, name.pkg)
}

// wrong says why the statement cannot be used once more; empty: it can.
func (h *handler) wrong(errName string) (why string) {
	refuse := func(text string) {
		if why == "" {
			why = text
		}
	}
	made := h.assign.Lhs[0]
	for _, s := range h.fails.Body.List {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, ok := ast.Unparen(s.X).(*ast.CallExpr); !ok {
				refuse("how its error is handled does more than log and return")
			}
		case *ast.ReturnStmt:
			if len(s.Results) == 0 && errName != h.err.Name() {
				refuse("how its error is handled returns the error by its result's name")
			}
		default:
			refuse("how its error is handled does more than log and return")
		}
	}
	ast.Inspect(h.fails.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if !h.says(n) {
				refuse("how its error is handled calls " + types.ExprString(n.Fun))
			}
		case *ast.FuncLit:
			refuse("how its error is handled has a function in it")
		case ast.Expr:
			if id, ok := n.(*ast.Ident); types.ExprString(n) == types.ExprString(made) && (!ok || id.Name != "_") {
				refuse("how its error is handled uses " + types.ExprString(made))
			}
		}
		return true
	})
	return why
}

// message returns the text that the first statement says: the first literal among the arguments of its call.
func (h *handler) message() *ast.BasicLit {
	if len(h.fails.Body.List) == 0 {
		return nil
	}
	var said []ast.Expr
	switch s := h.fails.Body.List[0].(type) {
	case *ast.ExprStmt:
		said = []ast.Expr{s.X}
	case *ast.ReturnStmt:
		said = s.Results
	}
	for _, x := range said {
		c, ok := ast.Unparen(x).(*ast.CallExpr)
		if !ok {
			continue
		}
		for _, arg := range c.Args {
			if inner, ok := ast.Unparen(arg).(*ast.CallExpr); ok && len(inner.Args) > 0 { // panic(fmt.Sprintf(…))
				arg = inner.Args[0]
			}
			if lit, ok := ast.Unparen(arg).(*ast.BasicLit); ok && lit.Kind == token.STRING {
				return lit
			}
		}
	}
	return nil
}

var format1 = regexp.MustCompile(`%[vws]`)

// text returns the statement for an error of that name. Its message says that it is the rota's, unless that has a
// format of its own.
func (h *handler) text(errName string) string {
	type part struct {
		n    ast.Node
		text string
	}
	var parts []part
	if lit := h.message(); lit != nil {
		value, err := strconv.Unquote(lit.Value)
		verbs := format1.FindAllString(value, -1)
		switch {
		case err != nil || strings.Count(value, "%") != len(verbs):
		case len(verbs) == 0:
			parts = append(parts, part{lit, strconv.Quote("Failed to set up the rota")})
		case len(verbs) == 1:
			parts = append(parts, part{lit, strconv.Quote("set up the rota: " + verbs[0])})
		}
	}
	ast.Inspect(h.fails, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && h.info.ObjectOf(id) == h.err {
			parts = append(parts, part{id, errName})
		}
		return true
	})
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.n.Pos(), b.n.Pos()) })
	var b strings.Builder
	at := h.fails.Pos()
	for _, p := range parts {
		b.Write(h.old[h.at(at):h.at(p.n.Pos())])
		b.WriteString(p.text)
		at = p.n.End()
	}
	b.Write(h.old[h.at(at):h.at(h.fails.End())])
	return b.String()
}
