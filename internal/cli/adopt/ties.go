package adopt

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/packages"
)

// stockManager says which stock manager a controller may be built on, so that a builder of ctrlrt would be refused at
// the start; empty: there is none. written are the managers that are made by ctrlrt after these edits. If all managers
// that it may be built on are stock ones that a comment leaves, the controller is left with them.
func (e *editor) stockManager(c *controller, written map[*manager]bool) (kept string) {
	on := e.managersOf(c)
	if len(on) == 0 {
		return "the manager on which it is built was not found"
	}
	reason, left := "", 0
	for _, m := range on {
		if m.adopted || written[m] {
			continue
		}
		at := e.module.at(m.CallExpr)
		if kept == "" {
			kept = fmt.Sprintf("the manager of %s:%d, on which it may be built, is a stock one", at.File, at.Line)
		}
		if known := e.isKnown(at, codeManager); known != "" {
			reason, left = known, left+1
		}
	}
	if left == len(on) {
		for _, f := range e.becoming(c.at) {
			f.Level, f.Known = Fine, reason
		}
	}
	return kept
}

// becoming returns the findings of what becomes of a controller.
func (e *editor) becoming(at place) (out []*Finding) {
	for i := range e.report.Findings {
		f := &e.report.Findings[i]
		if f.File == at.File && f.Line == at.Line && slices.Contains([]string{codeSharded, codeDuty, codeByHand}, f.Code) {
			out = append(out, f)
		}
	}
	return out
}

// managersOf returns the managers on which a controller may be built: the one that a variable of the same function
// holds, or all that are in a program with it.
func (s *source) managersOf(c *controller) (on []*manager) {
	if len(c.Args) > 0 {
		if id, ok := ast.Unparen(c.Args[0]).(*ast.Ident); ok {
			if from, ok := s.made(c.info, id).(*ast.CallExpr); ok {
				for _, m := range s.managers {
					if m.CallExpr == from {
						return []*manager{m}
					}
				}
			}
		}
	}
	if len(s.managers) < 2 {
		return s.managers
	}
	mains := s.programs(c.in.PkgPath)
	for _, m := range s.managers {
		with := s.programs(m.in.PkgPath)
		if len(mains) == 0 || len(with) == 0 || slices.ContainsFunc(mains, func(p string) bool {
			return slices.Contains(with, p)
		}) {
			on = append(on, m)
		}
	}
	return on
}

// made returns the expression that gives a local variable its only value, or nil.
func (s *source) made(info *types.Info, id *ast.Ident) (from ast.Expr) {
	v, fn := info.ObjectOf(id), s.module.enclosing(id)
	if fn == nil {
		return nil
	}
	values := 0
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if to, ok := ast.Unparen(l).(*ast.Ident); ok && info.ObjectOf(to) == v {
					values++
					if len(n.Rhs) == len(n.Lhs) || i == 0 && len(n.Rhs) == 1 {
						from = ast.Unparen(n.Rhs[i])
					}
				}
			}
		case *ast.UnaryExpr:
			if x, ok := ast.Unparen(n.X).(*ast.Ident); ok && info.ObjectOf(x) == v {
				values++ // by its address it may get any
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				if info.Defs[name] == v && len(n.Values) > 0 {
					values++
				}
			}
		}
		return true
	})
	if values != 1 {
		return nil
	}
	return from
}

// programs returns the main packages that a package is part of.
func (s *source) programs(pkg string) (out []string) {
	byPath := map[string]*packages.Package{}
	for _, p := range s.module.packages {
		byPath[p.PkgPath] = p
	}
	for _, p := range s.module.packages {
		if p.Name != "main" {
			continue
		}
		seen := map[string]bool{}
		var visit func(p *packages.Package)
		visit = func(p *packages.Package) {
			if seen[p.PkgPath] {
				return
			}
			seen[p.PkgPath] = true
			for path := range p.Imports {
				if next := byPath[path]; next != nil {
					visit(next)
				}
			}
		}
		visit(p)
		if seen[pkg] {
			out = append(out, p.PkgPath)
		}
	}
	return out
}
