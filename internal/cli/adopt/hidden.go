package adopt

import (
	"go/ast"
	"slices"

	"golang.org/x/tools/go/packages"
)

// makers are the functions that make managers, builders and controllers. Where one is called is in the report.
var makers = []struct {
	pkg   string
	names []string
}{
	{runtimePath, []string{"NewManager", "NewControllerManagedBy"}},
	{managerPath, []string{"New"}},
	{builderPath, []string{"ControllerManagedBy", "TypedControllerManagedBy"}},
	{runtimePath + "/pkg/controller", []string{"New", "NewUnmanaged", "NewTyped", "NewTypedUnmanaged"}},
	{ctrlrtPath, []string{"NewManager", "NewControllerManagedBy", "NewDutyControllerManagedBy"}},
}

// findHidden looks for managers and controllers that are made in ways which are not followed: by a function as a value,
// or not in this module at all.
func (s *source) findHidden() {
	adopted := slices.ContainsFunc(s.managers, func(m *manager) bool { return m.adopted })
	for _, p := range s.module.packages {
		for _, file := range p.Syntax {
			if s.module.isTest(file) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok || p.TypesInfo.Uses[id] == nil || s.isCalled(id) {
					return true
				}
				c := calleeOf(p.TypesInfo.Uses[id])
				for _, m := range makers {
					if c.pkg != m.pkg || c.recv != "" || !slices.Contains(m.names, c.name) {
						continue
					}
					level := Must
					if m.pkg == ctrlrtPath {
						level = Look
						adopted = adopted || c.name == "NewManager"
					}
					s.found(level, codeUnseen, s.module.at(id), "%s.%s is used as a value: what it makes is not seen", pkgOf(c),
						c.name)
				}
				return true
			})
		}
	}
	if !s.usesManagers() {
		return
	}
	if len(s.managers) == 0 && !adopted {
		level, text := Look, "no place makes a manager"
		if slices.ContainsFunc(s.module.packages, isProgram) {
			level, text = Must, "there is a program, and no place makes a manager"
		}
		s.found(level, codeUnseen, place{}, "%s", text)
	}
	if len(s.controllers) == 0 {
		s.found(Look, codeUnseen, place{}, "no place builds a controller")
	}
}

func isProgram(p *packages.Package) bool { return p.Name == "main" }

// usesManagers reports whether the module imports what makes managers and controllers.
func (s *source) usesManagers() bool {
	return slices.ContainsFunc(s.module.packages, func(p *packages.Package) bool {
		for _, m := range makers {
			if p.Imports[m.pkg] != nil {
				return true
			}
		}
		return false
	})
}
