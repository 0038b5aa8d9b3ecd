package adopt

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// sourcePackage is a package whose source is read.
type sourcePackage struct {
	types *types.Package
	info  *types.Info
	files []*ast.File
}

// program is an operator in SSA form. Only its own functions have bodies. Dependencies only have types.
type program struct {
	fset      *token.FileSet
	own       map[*types.Package]*sourcePackage
	ssa       *ssa.Program
	functions []*ssa.Function
	// callees maps calls to the functions with bodies that they may reach. callers is the reverse.
	callees map[ssa.CallInstruction][]*ssa.Function
	callers map[*ssa.Function][]ssa.CallInstruction
	// stores maps variables, struct fields and globals to all values stored in them.
	stores   map[any][]ssa.Value
	closures map[*ssa.Function][]*ssa.MakeClosure
	// calls maps the position of a call's parenthesis, which is its position in SSA, to its syntax.
	calls map[token.Pos]*ast.CallExpr
}

// newProgram builds the SSA form of packages, and their call graph.
func newProgram(fset *token.FileSet, list []*sourcePackage) *program {
	p := &program{
		fset: fset, own: map[*types.Package]*sourcePackage{}, ssa: ssa.NewProgram(fset, ssa.InstantiateGenerics),
		callees: map[ssa.CallInstruction][]*ssa.Function{}, callers: map[*ssa.Function][]ssa.CallInstruction{},
		stores: map[any][]ssa.Value{}, closures: map[*ssa.Function][]*ssa.MakeClosure{}, calls: map[token.Pos]*ast.CallExpr{},
	}
	for _, s := range list {
		p.own[s.types] = s
		for _, f := range s.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					p.calls[c.Lparen] = c
				}
				return true
			})
		}
	}
	created := map[*types.Package]bool{}
	var create func(*types.Package)
	create = func(pkg *types.Package) {
		if created[pkg] {
			return
		}
		created[pkg] = true
		for _, imported := range pkg.Imports() {
			create(imported)
		}
		if s := p.own[pkg]; s != nil {
			p.ssa.CreatePackage(pkg, s.files, s.info, true)
		} else {
			p.ssa.CreatePackage(pkg, nil, nil, true)
		}
	}
	for _, s := range list {
		create(s.types)
	}
	p.ssa.Build()
	p.link()
	return p
}

// link fills the maps. A call through an interface or a variable reaches the functions that VTA finds. If it finds
// none, for example because a dependency supplies the value, an interface of the operator may have any type that
// implements it, and an interface of a dependency, such as a client, has a dependency's type.
func (p *program) link() {
	all := ssautil.AllFunctions(p.ssa)
	for f := range all {
		generic := f.TypeParams().Len() > 0 && len(f.TypeArgs()) == 0
		if f.Blocks != nil && !generic {
			p.functions = append(p.functions, f)
		}
	}
	// Files are parsed concurrently, so positions in the file set differ between runs.
	slices.SortFunc(p.functions, func(a, b *ssa.Function) int {
		at, bt := p.ssa.Fset.Position(a.Pos()), p.ssa.Fset.Position(b.Pos())
		return cmp.Or(cmp.Compare(at.Filename, bt.Filename), cmp.Compare(at.Offset, bt.Offset),
			cmp.Compare(a.String(), b.String()))
	})
	wide := cha.CallGraph(p.ssa)
	p.addEdges(vta.CallGraph(all, wide), func(ssa.CallInstruction) bool { return true })
	found := map[ssa.CallInstruction]bool{}
	for site := range p.callees {
		found[site] = true
	}
	p.addEdges(wide, func(site ssa.CallInstruction) bool {
		c := site.Common()
		return c.IsInvoke() && !found[site] && p.own[c.Method.Pkg()] != nil
	})
	for i := range p.each() {
		if c, ok := i.(*ssa.MakeClosure); ok {
			fn := c.Fn.(*ssa.Function)
			p.closures[fn] = append(p.closures[fn], c)
		}
	}
	for i := range p.each() { // closures give the places of captured variables
		if s, ok := i.(*ssa.Store); ok {
			if at := p.place(s.Addr); at != nil {
				p.stores[at] = append(p.stores[at], s.Val)
			}
		}
	}
}

func (p *program) addEdges(g *callgraph.Graph, wanted func(ssa.CallInstruction) bool) {
	for _, f := range p.functions {
		node := g.Nodes[f]
		if node == nil {
			continue
		}
		for _, e := range node.Out {
			if e.Site != nil && e.Callee.Func.Blocks != nil && wanted(e.Site) {
				p.callees[e.Site] = append(p.callees[e.Site], e.Callee.Func)
				p.callers[e.Callee.Func] = append(p.callers[e.Callee.Func], e.Site)
			}
		}
	}
}

// each yields all instructions.
func (p *program) each() func(func(ssa.Instruction) bool) {
	return func(yield func(ssa.Instruction) bool) {
		for _, f := range p.functions {
			for i := range instructions(f) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// instructions yields the instructions of a function.
func instructions(f *ssa.Function) func(func(ssa.Instruction) bool) {
	return func(yield func(ssa.Instruction) bool) {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// place identifies a variable by its address: a local or global variable, or a field of any value of a struct type.
func (p *program) place(addr ssa.Value) any {
	switch a := addr.(type) {
	case *ssa.Alloc, *ssa.Global:
		return a
	case *ssa.FieldAddr:
		return fieldOf(a.X.Type(), a.Field).Pos()
	case *ssa.FreeVar:
		for _, v := range p.bindings(a) {
			return p.place(v)
		}
	}
	return nil
}

func fieldOf(t types.Type, i int) *types.Var {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	return t.Underlying().(*types.Struct).Field(i)
}

func (p *program) bindings(v *ssa.FreeVar) (out []ssa.Value) {
	i := slices.Index(v.Parent().FreeVars, v)
	for _, c := range p.closures[v.Parent()] {
		out = append(out, c.Bindings[i])
	}
	return out
}

// origins returns the possible origins of v, through variables, fields, parameters and results. It stops where stop is
// true.
func (p *program) origins(v ssa.Value, stop func(ssa.Value) bool) (out []ssa.Value) {
	seen := map[ssa.Value]bool{}
	var visit func(ssa.Value)
	visit = func(v ssa.Value) {
		if seen[v] {
			return
		}
		seen[v] = true
		var from []ssa.Value
		if !stop(v) {
			from = p.before(v)
		}
		if len(from) == 0 {
			out = append(out, v)
		}
		for _, b := range from {
			visit(b)
		}
	}
	visit(v)
	return out
}

// makers returns the origins of v, with calls for the results of calls.
func (p *program) makers(v ssa.Value) []ssa.Value {
	all := p.origins(v, func(ssa.Value) bool { return false })
	for i, from := range all {
		if e, ok := from.(*ssa.Extract); ok {
			all[i] = e.Tuple
		}
	}
	return all
}

// before returns the values that v copies, or none if v originates there or is unknown.
func (p *program) before(v ssa.Value) []ssa.Value {
	switch v := v.(type) {
	case *ssa.Phi:
		return v.Edges
	case *ssa.ChangeType:
		return []ssa.Value{v.X}
	case *ssa.ChangeInterface:
		return []ssa.Value{v.X}
	case *ssa.MakeInterface:
		return []ssa.Value{v.X}
	case *ssa.TypeAssert:
		return []ssa.Value{v.X}
	case *ssa.Extract:
		switch t := v.Tuple.(type) {
		case *ssa.Call:
			return p.returned(t, v.Index)
		case *ssa.TypeAssert:
			return []ssa.Value{t.X}
		}
	case *ssa.Call:
		return p.returned(v, 0)
	case *ssa.Parameter:
		return p.arguments(v)
	case *ssa.FreeVar:
		return p.bindings(v)
	case *ssa.UnOp:
		if v.Op == token.MUL {
			return p.stores[p.place(v.X)]
		}
	case *ssa.Field:
		return p.stores[fieldOf(v.X.Type(), v.Field).Pos()]
	}
	return nil
}

// storesOf returns all values stored in a struct's field.
func (p *program) storesOf(of types.Type, name string) []ssa.Value {
	st, ok := of.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	for f := range st.Fields() {
		if f.Name() == name {
			return p.stores[f.Pos()]
		}
	}
	return nil
}

// returned returns the possible results of a call of the operator's functions. A dependency's function that derives a
// context from a context, or a configuration from a configuration, returns its first argument.
func (p *program) returned(call *ssa.Call, result int) (out []ssa.Value) {
	if args, results := call.Call.Args, call.Call.Signature().Results(); len(p.callees[call]) == 0 && len(args) > 0 {
		of := args[0].Type()
		derives := isNamed(of, "context", "Context") || isNamed(of, clientGo+"/rest", "Config")
		if derives && types.Identical(of, results.At(result).Type()) {
			return args[:1]
		}
	}
	for _, f := range p.callees[call] {
		for i := range instructions(f) {
			if r, ok := i.(*ssa.Return); ok && result < len(r.Results) {
				out = append(out, r.Results[result])
			}
		}
	}
	return out
}

// arguments returns the possible arguments of a parameter.
func (p *program) arguments(v *ssa.Parameter) (out []ssa.Value) {
	i := slices.Index(v.Parent().Params, v)
	for _, site := range p.callers[v.Parent()] {
		out = append(out, argument(site.Common(), i))
	}
	return out
}

// argument returns a call's argument for the i-th parameter. The receiver comes first.
func argument(c *ssa.CallCommon, i int) ssa.Value {
	if !c.IsInvoke() {
		return c.Args[i]
	}
	if i == 0 {
		return c.Value
	}
	return c.Args[i-1]
}

// reach returns the functions that may run when the roots run, including functions that are only referenced.
func (p *program) reach(roots []*ssa.Function) map[*ssa.Function]bool {
	reached := map[*ssa.Function]bool{}
	var visit func(*ssa.Function)
	visit = func(f *ssa.Function) {
		if f == nil || f.Blocks == nil || reached[f] {
			return
		}
		reached[f] = true
		for i := range instructions(f) {
			if call, ok := i.(ssa.CallInstruction); ok {
				for _, g := range p.callees[call] {
					visit(g)
				}
			}
			for _, op := range i.Operands(nil) {
				if g, ok := (*op).(*ssa.Function); ok {
					visit(g)
				}
			}
		}
	}
	for _, f := range roots {
		visit(f)
	}
	return reached
}

// method returns the operator's method of a type, or nil.
func (p *program) method(t types.Type, name string) *ssa.Function {
	if types.IsInterface(t) {
		return nil
	}
	for sel := range p.ssa.MethodSets.MethodSet(t).Methods() {
		if sel.Obj().Name() == name {
			return p.selected(sel)
		}
	}
	return nil
}

// selected returns the operator's function that a selection selects, or nil.
func (p *program) selected(sel *types.Selection) *ssa.Function {
	fn := sel.Obj().(*types.Func)
	if p.own[fn.Pkg()] == nil {
		return nil
	}
	if f := p.ssa.FuncValue(fn); f != nil && f.TypeParams().Len() == 0 && f.Signature.RecvTypeParams().Len() == 0 {
		return f
	}
	return p.ssa.MethodValue(sel)
}

// functionsIn returns the functions in a value: closures, functions, and methods of the operator's types, also in
// literals and in the arguments of a dependency's functions.
func (p *program) functionsIn(v ssa.Value) (out []*ssa.Function) {
	seen := map[ssa.Value]bool{}
	var visit func(ssa.Value)
	visit = func(v ssa.Value) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		switch v := v.(type) {
		case *ssa.Function:
			out = append(out, v)
			return
		case *ssa.MakeClosure:
			out = append(out, v.Fn.(*ssa.Function))
			return
		case *ssa.MakeInterface:
			if named := namedOf(v.X.Type()); named != nil && p.own[named.Obj().Pkg()] != nil {
				for sel := range p.ssa.MethodSets.MethodSet(v.X.Type()).Methods() {
					if f := p.selected(sel); f != nil {
						out = append(out, f)
					}
				}
			}
		case *ssa.Call:
			for _, a := range v.Call.Args {
				visit(a)
			}
		case *ssa.Slice:
			visit(v.X)
		case *ssa.UnOp:
			visit(v.X)
		case *ssa.Alloc:
			for _, r := range *v.Referrers() {
				if addr, ok := r.(ssa.Value); ok {
					for _, use := range *addr.Referrers() {
						if s, ok := use.(*ssa.Store); ok && s.Addr == addr {
							visit(s.Val)
						}
					}
				}
			}
			for _, s := range p.stores[v] {
				visit(s)
			}
		}
		for _, b := range p.before(v) {
			visit(b)
		}
	}
	visit(v)
	return out
}
