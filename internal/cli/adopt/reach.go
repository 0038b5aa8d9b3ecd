package adopt

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
)

// function is one of the module's, or a function literal that runs by itself: a reconciler, or a handler of events.
type function struct {
	node ast.Node // *ast.FuncDecl or *ast.FuncLit
	typ  *ast.FuncType
	body *ast.BlockStmt
	info *types.Info
}

// params are the function's parameters.
func (f *function) params() (out []types.Object) {
	for _, field := range f.typ.Params.List {
		for _, name := range field.Names {
			out = append(out, f.info.Defs[name])
		}
		if len(field.Names) == 0 {
			out = append(out, nil)
		}
	}
	return out
}

// argument returns what a call hands to the parameter that an expression of the function is, or the expression itself.
func (f *function) argument(v given, c *call) given {
	if v.Expr == nil {
		return v
	}
	obj := objectOf(v.info, v.Expr)
	if i := slices.Index(f.params(), obj); obj != nil && i >= 0 && i < len(c.Args) {
		return given{Expr: c.Args[i], info: c.in.TypesInfo}
	}
	return v
}

// receiver is the variable of a method's receiver, or nil.
func (f *function) receiver() types.Object {
	decl, ok := f.node.(*ast.FuncDecl)
	if !ok || decl.Recv == nil || len(decl.Recv.List) != 1 || len(decl.Recv.List[0].Names) != 1 {
		return nil
	}
	return f.info.Defs[decl.Recv.List[0].Names[0]]
}

// reach says which functions of the module a function may call: those that it names, and for a method of an interface
// those of that name and number of parameters in the module. It is more than what is called: a function that is only
// named counts.
type reach struct {
	fset *token.FileSet
	// functions are the module's, by full name, and the literals that run by themselves, by place.
	functions map[string]*function
	// literals are the keys of the latter.
	literals map[*ast.FuncLit]string
	// names has what each function names; made when it is needed.
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
	r := &reach{fset: m.fset, functions: map[string]*function{}, literals: map[*ast.FuncLit]string{},
		names: map[string][]*types.Func{}, methods: map[signature][]string{}}
	for _, p := range m.packages {
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				decl, ok := d.(*ast.FuncDecl)
				if !ok || decl.Body == nil || m.isTest(decl) {
					continue
				}
				fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func)
				if !ok {
					continue
				}
				key := fn.FullName()
				r.functions[key] = &function{decl, decl.Type, decl.Body, p.TypesInfo}
				if decl.Recv != nil {
					r.methods[signatureOf(fn)] = append(r.methods[signatureOf(fn)], key)
				}
			}
		}
	}
	return r
}

// sorted are the keys of all functions.
func (r *reach) sorted() []string { return slices.Sorted(maps.Keys(r.functions)) }

// literal makes a function literal a function of its own: what is in it is not what the function around it does.
func (r *reach) literal(info *types.Info, lit *ast.FuncLit) string {
	key := r.literals[lit]
	if key == "" {
		key = "literal " + r.fset.PositionFor(lit.Pos(), false).String()
		r.literals[lit] = key
		r.functions[key] = &function{lit, lit.Type, lit.Body, info}
		clear(r.names)
	}
	return key
}

// keysOf returns the functions of the module that a call of one may run.
func (r *reach) keysOf(fn *types.Func) []string {
	fn = fn.Origin()
	if recv := fn.Type().(*types.Signature).Recv(); recv != nil && types.IsInterface(recv.Type()) {
		if commonMethod[fn.Name()] {
			return nil
		}
		return r.methods[signatureOf(fn)]
	}
	if key := fn.FullName(); r.functions[key] != nil {
		return []string{key}
	}
	return nil
}

// inspect walks through a function, but not into literals that run by themselves.
func (r *reach) inspect(f *function, visit func(ast.Node) bool) {
	ast.Inspect(f.body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && r.literals[lit] != "" {
			return false
		}
		return n == nil || visit(n)
	})
}

// namedIn returns the functions that a function names.
func (r *reach) namedIn(key string) []*types.Func {
	if out, ok := r.names[key]; ok {
		return out
	}
	f := r.functions[key]
	out := []*types.Func{}
	r.inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if fn, ok := f.info.Uses[id].(*types.Func); ok {
				out = append(out, fn)
			}
		}
		return true
	})
	r.names[key] = out
	return out
}

// from returns the functions of the module that may run when these do, these included.
func (r *reach) from(keys []string) map[string]bool {
	seen := map[string]bool{}
	var visit func(key string)
	visit = func(key string) {
		if seen[key] || r.functions[key] == nil {
			return
		}
		seen[key] = true
		for _, fn := range r.namedIn(key) {
			for _, next := range r.keysOf(fn) {
				visit(next)
			}
		}
	}
	for _, key := range keys {
		visit(key)
	}
	return seen
}

// fromNode returns the functions of the module that may run where a node does.
func (r *reach) fromNode(info *types.Info, n ast.Node) map[string]bool {
	var keys []string
	for _, fn := range functionsIn(info, n) {
		keys = append(keys, r.keysOf(fn)...)
	}
	return r.from(keys)
}

// functionsIn returns the functions that an expression names, and those that function literals in it name.
func functionsIn(info *types.Info, e ast.Node) []*types.Func {
	var out []*types.Func
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if fn, ok := info.Uses[id].(*types.Func); ok {
				out = append(out, fn)
			}
		}
		return true
	})
	return out
}

// commonMethod has names of methods that so many types have that following them would lead everywhere: those of
// clients, loggers, errors and reconcilers themselves.
var commonMethod = map[string]bool{
	"Get": true, "List": true, "Create": true, "Update": true, "Patch": true, "Delete": true, "DeleteAllOf": true,
	"Error": true, "String": true, "Info": true, "Reconcile": true, "Close": true, "Start": true, "Run": true,
	"Watch": true,
}

// keyOf returns the function that a node is in.
func (s *source) keyOf(n ast.Node) string {
	for ; n != nil; n = s.module.parents[n] {
		switch n := n.(type) {
		case *ast.FuncLit:
			if key := s.reach.literals[n]; key != "" {
				return key
			}
		case *ast.FuncDecl:
			if p := s.module.inFile[s.module.file(n)]; p != nil {
				if fn, ok := p.TypesInfo.Defs[n.Name].(*types.Func); ok {
					return fn.FullName()
				}
			}
		}
	}
	return ""
}

// runsFor returns the controllers for which a function may run.
func (s *source) runsFor(key string) []*controller {
	var out []*controller
	for _, c := range s.controllers {
		if c.reached[key] != notReached {
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
