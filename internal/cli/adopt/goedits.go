package adopt

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// editor edits the operator's Go files.
type editor struct {
	*source
	files map[*ast.File]*goFile
}

// unit is an edit that can be dropped without the others: that of a manager or of a controller.
type unit struct {
	call *ast.CallExpr
	// file is where it is, pkg the package of that file, and function the declaration around it.
	file, pkg, function string
}

// edit makes the changes that are surely right, as far as there are any, and marks their findings as written.
func (s *source) edit() {
	e := &editor{s, map[*ast.File]*goFile{}}
	s.units, s.namespaced = nil, false
	stays := func(m *manager) bool { return s.isKnown(s.module.at(m.CallExpr), codeManager) != "" }
	left := slices.DeleteFunc(slices.Clone(s.managers), stays)
	written := map[*manager]bool{}
	for _, m := range left {
		if m.adopted {
			continue
		}
		var kept string
		switch {
		case slices.ContainsFunc(left, func(m *manager) bool { return m.adopted }):
			kept = "another one is made by ctrlrt already; rota:ignore Manager says that this one stays"
		case len(left) > 1:
			kept = "there are several: rota:ignore Manager says which ones stay, and the last one is written"
		default:
			kept = e.manager(m)
			written[m] = kept == ""
		}
		s.kept(s.module.at(m.CallExpr), kept, codeManager)
	}
	for _, c := range s.controllers {
		if c.adopted || c.raw {
			continue
		}
		kept := e.stockManager(c, written)
		if kept == "" {
			kept = e.controller(c)
		}
		s.kept(c.at, kept, codeSharded, codeDuty)
	}
	for _, f := range e.files {
		f.imports()
	}
}

// redo makes the changes anew, without those that are dropped.
func (s *source) redo() {
	for name := range s.edits.files {
		if strings.HasSuffix(name, ".go") {
			delete(s.edits.files, name)
		}
	}
	for i := range s.report.Findings {
		f := &s.report.Findings[i]
		switch f.Code {
		case codeManager, codeElection, codeSharded, codeDuty:
			f.Written, f.Kept = false, ""
		}
	}
	s.edit()
}

// changed notes that a call's edit is made.
func (e *editor) changed(call *ast.CallExpr) {
	u := unit{call: call, file: e.module.name(call), pkg: e.module.inFile[e.module.file(call)].PkgPath}
	if fn := e.module.enclosing(call); fn != nil {
		u.function = nameOf(fn)
	}
	e.units = append(e.units, u)
}

// nameOf names a function or method within its package.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv != nil && len(fn.Recv.List) == 1 {
		return types.ExprString(fn.Recv.List[0].Type) + "." + fn.Name.Name
	}
	return fn.Name.Name
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

// controller has a controller built by package ctrlrt. Others are left to people, and kept says why.
func (e *editor) controller(c *controller) (kept string) {
	what, _ := c.becomes()
	build := map[string]string{Sharded: "ctrlrt.NewControllerManagedBy", Duty: "ctrlrt.NewDutyControllerManagedBy"}[what]
	if build == "" || e.isKnown(c.at, codeSharded, codeDuty) != "" {
		return ""
	}
	if why := e.dropped[c.CallExpr]; why != "" {
		return why
	}
	f, kept := e.open(c.CallExpr)
	if kept != "" {
		return kept
	}
	if !f.can(e.module.enclosing(c.CallExpr), ctrlrtPath) {
		return noName
	}
	if kept := e.builderType(c); kept != "" {
		return kept
	}
	f.add(f.at(c.Fun.Pos()), f.at(c.Fun.End()), build)
	f.want(ctrlrtPath)
	f.drop(c.Fun)
	e.changed(c.CallExpr)
	e.written(c.at, codeSharded, codeDuty)
	return ""
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
