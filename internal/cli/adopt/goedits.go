package adopt

import (
	"go/ast"
	"slices"
)

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
