package adopt

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// reach says which functions of the module a function may call: those that it names, and for a method of an interface
// those of that name and number of parameters in the module. It is more than what is called: a function that is only
// named counts.
type reach struct {
	decls map[string]*ast.FuncDecl
	infos map[string]*types.Info
	// names has what each function names.
	names map[string][]*types.Func
	// methods has the module's methods by name and number of parameters.
	methods map[signature][]string
}

type signature struct {
	name   string
	params int
}

func signatureOf(fn *types.Func) signature {
	return signature{fn.Name(), fn.Type().(*types.Signature).Params().Len()}
}

// newReach reads the module's functions.
func newReach(m *module) *reach {
	r := &reach{decls: map[string]*ast.FuncDecl{}, infos: map[string]*types.Info{}, names: map[string][]*types.Func{},
		methods: map[signature][]string{}}
	for _, p := range m.packages {
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				decl, ok := d.(*ast.FuncDecl)
				if !ok || decl.Body == nil {
					continue
				}
				fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func)
				if !ok {
					continue
				}
				key := fn.FullName()
				r.decls[key], r.infos[key] = decl, p.TypesInfo
				r.names[key] = functionsIn(p.TypesInfo, decl.Body)
				if decl.Recv != nil {
					r.methods[signatureOf(fn)] = append(r.methods[signatureOf(fn)], key)
				}
			}
		}
	}
	return r
}

// from returns the functions of the module that may run when these do, these included, by their full names.
func (r *reach) from(roots []*types.Func) map[string]bool {
	seen := map[string]bool{}
	var visit func(fn *types.Func)
	visitKey := func(key string) {
		if seen[key] || r.decls[key] == nil {
			return
		}
		seen[key] = true
		for _, next := range r.names[key] {
			visit(next)
		}
	}
	visit = func(fn *types.Func) {
		recv := fn.Type().(*types.Signature).Recv()
		if recv != nil && types.IsInterface(recv.Type()) {
			if !commonMethod[fn.Name()] {
				for _, key := range r.methods[signatureOf(fn)] {
					visitKey(key)
				}
			}
			return
		}
		visitKey(fn.Origin().FullName())
	}
	for _, fn := range roots {
		visit(fn)
	}
	return seen
}

// commonMethod has names of methods that so many types have that following them would lead everywhere: those of
// clients, loggers, errors and reconcilers themselves.
var commonMethod = map[string]bool{
	"Get": true, "List": true, "Create": true, "Update": true, "Patch": true, "Delete": true, "DeleteAllOf": true,
	"Error": true, "String": true, "Info": true, "Reconcile": true, "Close": true, "Start": true, "Run": true,
	"Watch": true,
}

// runsFor returns the controllers for whose objects a function may run.
func (s *source) runsFor(decl *ast.FuncDecl, info *types.Info) []*controller {
	if s.reach == nil {
		s.reach = newReach(s.module)
		for _, c := range s.controllers {
			c.reached = s.reach.from(c.roots)
		}
	}
	if decl == nil {
		return nil
	}
	fn, ok := info.Defs[decl.Name].(*types.Func)
	if !ok {
		return nil
	}
	var out []*controller
	for _, c := range s.controllers {
		if c.reached[fn.FullName()] {
			out = append(out, c)
		}
	}
	return out
}

// titles names controllers, for messages.
func titles(cs []*controller) string {
	names := map[string]bool{}
	for _, c := range cs {
		names[c.title()] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	text := ""
	for i, name := range sorted {
		switch {
		case i == 3:
			return text + ", …"
		case i > 0:
			text += ", "
		}
		text += name
	}
	return text
}
