package adopt

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// kind is a kind of object, by the Go type that stands for it. Kinds that are known by their names alone, such as
// unstructured ones, have no package. The zero value is a kind that is not known before the program runs.
type kind struct {
	pkg, name string
}

func (k kind) known() bool { return k != kind{} }

// may reports whether two kinds may be one: of an unstructured one only the name is known.
func (k kind) may(other kind) bool {
	return k == other && k.known() || k.name != "" && k.name == other.name && (k.pkg == "" || other.pkg == "")
}

// mayBeIn reports whether a kind may be one of a list.
func (k kind) mayBeIn(list []kind) bool {
	return slices.ContainsFunc(list, k.may)
}

// String names the kind as Go source does.
func (k kind) String() string {
	if i := strings.LastIndex(k.pkg, "/"); i >= 0 {
		return k.pkg[i+1:] + "." + k.name
	}
	return k.name
}

// full names the kind with the whole path of its package.
func (k kind) full() string { return strings.TrimPrefix(k.pkg+"."+k.name, ".") }

// item returns the kind of a list's items.
func (k kind) item() kind { return kind{k.pkg, strings.TrimSuffix(k.name, "List")} }

// kindOfType returns the kind that a type stands for.
func kindOfType(t types.Type) kind {
	named := namedOf(t)
	if named == nil || named.Obj().Pkg() == nil || types.IsInterface(named) || isUnstructured(t) {
		return kind{}
	}
	k := kind{named.Obj().Pkg().Path(), named.Obj().Name()}
	if strings.HasPrefix(k.pkg, "k8s.io/apimachinery/") || k.pkg == clientPath {
		return kind{}
	}
	return k
}

// isUnstructured reports whether objects of a type have their kind in a field.
func isUnstructured(t types.Type) bool {
	const meta = "k8s.io/apimachinery/pkg/apis/meta/v1"
	return isNamed(t, meta+"/unstructured", "Unstructured") || isNamed(t, meta+"/unstructured", "UnstructuredList") ||
		isNamed(t, meta, "PartialObjectMetadata") || isNamed(t, meta, "PartialObjectMetadataList")
}

// kindOf returns the kind of an object or a list that is passed: by its type, by what a local variable of an interface
// gets, or by the kind that is set in the same function. Type parameters are those of a controller's reconciler.
func (s *source) kindOf(info *types.Info, e ast.Expr, c *controller) kind {
	t := info.TypeOf(e)
	if t == nil {
		return kind{}
	}
	if param, ok := types.Unalias(t).(*types.TypeParam); ok {
		return kindOfType(s.typeArgument(e, param, c))
	}
	if k := kindOfType(t); k.known() {
		return k
	}
	v, ok := objectOf(info, addressed(e)).(*types.Var)
	if !ok || v.IsField() {
		return kind{}
	}
	if isUnstructured(t) {
		return s.kindThatIsSet(info, e, v)
	}
	list := s.values.of[s.module.variableKey(v)]
	if len(list) != 1 || list[0].call != nil || list[0].Expr == e {
		return kind{}
	}
	return kindOfType(list[0].info.TypeOf(list[0].Expr))
}

// addressed returns x of &x.
func addressed(e ast.Expr) ast.Expr {
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok {
		return u.X
	}
	return e
}

// typeArgument returns what stands for a type parameter of a controller's reconciler, or nil.
func (s *source) typeArgument(at ast.Node, param *types.TypeParam, c *controller) types.Type {
	decl := s.module.enclosing(at)
	if c == nil || c.generic == nil || decl == nil || decl.Recv == nil {
		return nil
	}
	fn, ok := s.module.inFile[s.module.file(at)].TypesInfo.Defs[decl.Name].(*types.Func)
	if !ok {
		return nil
	}
	sig := fn.Type().(*types.Signature)
	if of := c.generic.Obj(); !isNamed(sig.Recv().Type(), of.Pkg().Path(), of.Name()) {
		return nil
	}
	for i := range sig.RecvTypeParams().Len() {
		if args := c.generic.TypeArgs(); sig.RecvTypeParams().At(i) == param && i < args.Len() {
			return args.At(i)
		}
	}
	return nil
}

// kindThatIsSet returns the kind that a function sets of an unstructured object, if it is one constant.
func (s *source) kindThatIsSet(info *types.Info, e ast.Expr, v *types.Var) kind {
	fn := s.module.enclosing(e)
	if fn == nil {
		return kind{}
	}
	names, unread := map[string]bool{}, false
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok || objectOf(info, sel.X) != types.Object(v) {
			return true
		}
		var name string
		switch sel.Sel.Name {
		case "SetGroupVersionKind":
			name = s.kindName(given{Expr: call.Args[0], info: info})
		case "SetKind":
			name = text(info, call.Args[0])
		default:
			return true
		}
		names[name], unread = true, unread || name == ""
		return true
	})
	if unread || len(names) != 1 {
		return kind{}
	}
	for name := range names {
		return kind{name: name}
	}
	return kind{}
}

// kindName returns the kind of a GroupVersionKind that is a constant in all but name: a literal, what WithKind makes,
// or a variable that gets nothing else.
func (s *source) kindName(v given) string {
	for range 4 { // one that is handed on more often is not followed
		if lit := literal(v.Expr); lit != nil {
			if kv := field(lit, "Kind"); kv != nil {
				return text(v.info, kv.Value)
			}
			return ""
		}
		if call, ok := ast.Unparen(v.Expr).(*ast.CallExpr); ok {
			if obj := objectOf(v.info, call.Fun); obj != nil && obj.Name() == "WithKind" && len(call.Args) == 1 {
				return text(v.info, call.Args[0])
			}
			return ""
		}
		variable, ok := objectOf(v.info, v.Expr).(*types.Var)
		if !ok || variable.IsField() {
			return ""
		}
		list := s.values.of[s.module.variableKey(variable)]
		if len(list) != 1 || list[0].call != nil {
			return ""
		}
		v = list[0]
	}
	return ""
}
