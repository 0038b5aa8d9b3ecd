package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// note is a finding with its place in the source, the edits that resolve it, and the imports that the edits need.
type note struct {
	Finding
	pos     token.Pos
	edits   []analysis.TextEdit
	imports []string
}

// scan is the analysis of an operator's source.
type scan struct {
	*program
	// dir is the operator's folder. name is the rota's name.
	dir, name   string
	managers    []*manager
	controllers []*controller
	lists       []listing
	ignores     []*ignored
	found       []*note
	// keepsFiles is true if a reconcile writes files that stay.
	keepsFiles bool
}

// newScan analyzes an operator.
func newScan(fset *token.FileSet, dir, name string, list []*sourcePackage) *scan {
	s := &scan{program: newProgram(fset, list), dir: dir, name: name}
	s.findIgnores(list)
	s.findManagers()
	s.findControllers()
	s.findHidden()
	// First decide which kinds are sharded, then report what depends on it.
	s.judge()
	s.findLists()
	s.findMemory()
	s.findEffects()
	s.findLate()
	s.reportLists()
	for i := range s.each() {
		if call, ok := i.(ssa.CallInstruction); ok && i.Pos().IsValid() {
			s.reportCall(call)
		}
	}
	s.decide()
	s.edit()
	s.unusedIgnores()
	return s
}

// find adds a finding.
func (s *scan) find(level Level, code string, pos token.Pos, format string, args ...any) *note {
	n := &note{Finding: newFinding(level, code, format, args...), pos: pos}
	for _, other := range s.found {
		if other.pos == pos && other.Code == code && other.Text == n.Text {
			return other // from another instance of a generic function
		}
	}
	s.found = append(s.found, n)
	s.know(n)
	return n
}

// position returns the start of a call, or its method's name in a chain of builder calls.
func (s *scan) position(call ssa.CallInstruction) token.Pos {
	c := s.calls[call.Pos()]
	if c == nil {
		return call.Pos()
	}
	if sel, ok := c.Fun.(*ast.SelectorExpr); ok {
		if _, chained := sel.X.(*ast.CallExpr); chained {
			return sel.Sel.Pos()
		}
	}
	return c.Pos()
}

// where formats a position for messages.
func (s *scan) where(pos token.Pos) string {
	p := s.fset.Position(pos)
	return fmt.Sprintf("%s:%d", strings.TrimPrefix(filepath.ToSlash(p.Filename), filepath.ToSlash(s.dir)+"/"), p.Line)
}
