package adopt

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
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
// those of that name and number of parameters, of types that have all the interface's methods. For a field, and a
// variable of a package, those are the functions that it gets anywhere. It is more than what is called: a function that
// is only named counts.
type reach struct {
	module *module
	// functions are the module's, by full name, and the literals that run by themselves, by place.
	functions map[string]*function
	// literals are the keys of the latter.
	literals map[*ast.FuncLit]string
	// names has the functions that each function names; made when it is needed.
	names map[string][]string
	// held are the functions in fields and in variables of packages.
	held map[any][]string
	// methods has the module's methods by name and number of parameters.
	methods map[signature][]method
	// paths are the module's packages.
	paths map[string]bool
}

type signature struct {
	name   string
	params int
}

// method is one of the module's, with all methods of its type.
type method struct {
	key    string
	others map[string]bool
}

func signatureOf(fn *types.Func) signature {
	return signature{fn.Name(), fn.Type().(*types.Signature).Params().Len()}
}

// newReach reads the module's functions.
func newReach(m *module) *reach {
	r := &reach{module: m, functions: map[string]*function{}, literals: map[*ast.FuncLit]string{},
		names: map[string][]string{}, held: map[any][]string{}, methods: map[signature][]method{}, paths: map[string]bool{}}
	for _, p := range m.packages {
		r.paths[p.PkgPath] = true
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
				if recv := fn.Type().(*types.Signature).Recv(); recv != nil {
					r.methods[signatureOf(fn)] = append(r.methods[signatureOf(fn)], method{key, methodsOf(recv.Type())})
				}
			}
		}
	}
	return r
}

// methodsOf returns the names of a type's methods, and of those of a pointer to it.
func methodsOf(t types.Type) map[string]bool {
	out := map[string]bool{}
	if named := namedOf(t); named != nil {
		set := types.NewMethodSet(types.NewPointer(named))
		for i := range set.Len() {
			out[set.At(i).Obj().Name()] = true
		}
	}
	return out
}

// methodOf returns the method of a type, or of a pointer to it. It is nil for an interface.
func methodOf(t types.Type, name string) *types.Func {
	named := namedOf(t)
	if named == nil || types.IsInterface(named) {
		return nil
	}
	m := types.NewMethodSet(types.NewPointer(named)).Lookup(nil, name)
	if m == nil {
		return nil
	}
	fn, _ := m.Obj().(*types.Func)
	return fn
}

// hold notes which functions are in fields of the module's types and in variables of its packages.
func (r *reach) hold(v *values) {
	for key, list := range v.of {
		if _, isName := key.(string); !isName {
			continue // a local variable, or a parameter
		}
		for _, given := range list {
			if !r.paths[given.to] {
				continue
			}
			if lit, ok := ast.Unparen(given.Expr).(*ast.FuncLit); ok {
				r.held[key] = append(r.held[key], r.literal(given.info, lit))
			} else if fn, ok := objectOf(given.info, given.Expr).(*types.Func); ok {
				r.held[key] = append(r.held[key], r.keysOf(fn)...)
			}
		}
	}
}

// sorted are the keys of all functions.
func (r *reach) sorted() []string { return slices.Sorted(maps.Keys(r.functions)) }

// literal makes a function literal a function of its own: what is in it is not what the function around it does.
func (r *reach) literal(info *types.Info, lit *ast.FuncLit) string {
	key := r.literals[lit]
	if key == "" {
		key = "literal " + r.module.fset.PositionFor(lit.Pos(), false).String()
		r.literals[lit] = key
		r.functions[key] = &function{lit, lit.Type, lit.Body, info}
		clear(r.names)
	}
	return key
}

// keysOf returns the functions of the module that a call of one may run.
func (r *reach) keysOf(fn *types.Func) []string {
	fn = fn.Origin()
	recv := fn.Type().(*types.Signature).Recv()
	if recv == nil || !types.IsInterface(recv.Type()) {
		if key := fn.FullName(); r.functions[key] != nil {
			return []string{key}
		}
		return nil
	}
	if commonMethod[fn.Name()] && (fn.Pkg() == nil || !r.paths[fn.Pkg().Path()]) {
		return nil
	}
	var out []string
	iface := recv.Type().Underlying().(*types.Interface)
	for _, m := range r.methods[signatureOf(fn)] {
		has := true
		for i := range iface.NumMethods() {
			has = has && m.others[iface.Method(i).Name()]
		}
		if has {
			out = append(out, m.key)
		}
	}
	return out
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

// namedIn returns the functions of the module that a function names.
func (r *reach) namedIn(key string) []string {
	if out, ok := r.names[key]; ok {
		return out
	}
	f := r.functions[key]
	out := []string{}
	r.inspect(f, func(n ast.Node) bool {
		out = append(out, r.namedBy(f.info, n)...)
		return true
	})
	r.names[key] = out
	return out
}

// namedBy returns the functions of the module that a name may stand for.
func (r *reach) namedBy(info *types.Info, n ast.Node) []string {
	id, ok := n.(*ast.Ident)
	if !ok {
		return nil
	}
	switch obj := info.Uses[id].(type) {
	case *types.Func:
		return r.keysOf(obj)
	case *types.Var:
		return r.held[r.module.variableKey(obj)]
	}
	return nil
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
		for _, next := range r.namedIn(key) {
			visit(next)
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
	ast.Inspect(n, func(n ast.Node) bool {
		keys = append(keys, r.namedBy(info, n)...)
		return true
	})
	return r.from(keys)
}

// commonMethod has names of methods that so many types have that following them from interfaces of other modules would
// lead everywhere: those of clients, loggers, errors and reconcilers themselves.
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

// does says that controllers do what a verb says.
func does(cs []*controller, verb string) string {
	names := titles(cs)
	if !strings.Contains(names, ",") {
		verb += "s"
	}
	return names + " " + verb
}
