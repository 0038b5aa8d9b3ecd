package adopt

import (
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

const (
	runtimePath = "sigs.k8s.io/controller-runtime"
	builderPath = runtimePath + "/pkg/builder"
	clientPath  = runtimePath + "/pkg/client"
	managerPath = runtimePath + "/pkg/manager"
	clientGo    = "k8s.io/client-go"
	rotaPath    = "github.com/rota-dev/rota"
	ctrlrtPath  = rotaPath + "/ctrlrt"
)

// callee identifies the target of a call: a function, a method by the type that declares it, or a package's variable.
type callee struct{ pkg, recv, name string }

func calleeOf(c *ssa.CallCommon) callee {
	if c.IsInvoke() {
		return nameOf(c.Method)
	}
	return valueName(c.Value)
}

// valueName identifies a function, or a package's variable that holds one.
func valueName(v ssa.Value) callee {
	switch v := v.(type) {
	case *ssa.Builtin:
		return callee{name: v.Name()}
	case *ssa.Function:
		if v.Origin() != nil {
			v = v.Origin()
		}
		if obj, ok := v.Object().(*types.Func); ok {
			return nameOf(obj)
		}
	case *ssa.UnOp:
		if g, ok := v.X.(*ssa.Global); ok {
			return callee{pkg: g.Pkg.Pkg.Path(), name: g.Name()}
		}
	}
	return callee{}
}

func nameOf(f *types.Func) (c callee) {
	c.name = f.Name()
	if f.Pkg() != nil {
		c.pkg = f.Pkg().Path()
	}
	if recv := f.Signature().Recv(); recv != nil {
		if named := namedOf(recv.Type()); named != nil {
			c.recv = named.Obj().Name()
		}
	}
	return c
}

// is reports whether it is one of a package's functions.
func (c callee) is(pkg string, names ...string) bool {
	return c.pkg == pkg && c.recv == "" && slices.Contains(names, c.name)
}

// method reports whether it is a type's method.
func (c callee) method(pkg, recv, name string) bool { return c == callee{pkg, recv, name} }

// short formats it for messages.
func (c callee) short() string { return c.pkg[strings.LastIndex(c.pkg, "/")+1:] + "." + c.name }

// fileMethods are methods of dependencies that write files.
var fileMethods = []string{"WriteFile", "AtomicWriteFile", "CopyFile", "CopyFromPath", "MkdirAll", "Archive", "Symlink"}

// writesFile reports whether it is a function of package os that writes a file, or a method with such a name.
func (c callee) writesFile() bool {
	return c.is("os", "WriteFile", "Create", "OpenFile", "Rename", "Symlink", "Link") ||
		c.pkg != "" && c.recv != "" && slices.Contains(fileMethods, c.name)
}

// takesTurns reports whether it waits for one of the usual rate limiters.
func (c callee) takesTurns() bool {
	return c.recv != "" && (c.pkg == "golang.org/x/time/rate" || c.pkg == clientGo+"/util/flowcontrol") &&
		slices.Contains([]string{"Allow", "AllowN", "Wait", "WaitN", "Reserve", "ReserveN", "TryAccept", "Accept"}, c.name)
}

// argumentsOf returns a call's arguments without the receiver.
func argumentsOf(c *ssa.CallCommon) []ssa.Value {
	if !c.IsInvoke() && c.Signature().Recv() != nil && len(c.Args) > 0 {
		return c.Args[1:]
	}
	return c.Args
}

// receiver returns the receiver of a method call, or nil.
func receiver(c *ssa.CallCommon) ssa.Value {
	switch {
	case c.IsInvoke():
		return c.Value
	case c.Signature().Recv() != nil && len(c.Args) > 0:
		return c.Args[0]
	}
	return nil
}

// namedOf returns the named type of a type or its pointer's target, or nil.
func namedOf(t types.Type) *types.Named {
	if ptr, ok := types.Unalias(t).(*types.Pointer); ok {
		t = ptr.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

func isNamed(t types.Type, pkg, name string) bool {
	named := namedOf(t)
	return named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == pkg && named.Obj().Name() == name
}

// text returns a string constant, or "".
func text(v ssa.Value) string {
	if c, ok := v.(*ssa.Const); ok && c.Value != nil && c.Value.Kind() == constant.String {
		return constant.StringVal(c.Value)
	}
	return ""
}

// kind is a kind of objects, identified by its Go type.
type kind struct{ pkg, name string }

func (k kind) known() bool { return k.name != "" }

func (k kind) String() string {
	if !k.known() {
		return "a kind that is not known before the program runs"
	}
	return k.pkg[strings.LastIndex(k.pkg, "/")+1:] + "." + k.name
}

func (k kind) full() string {
	if !k.known() {
		return ""
	}
	return k.pkg + "." + k.name
}

// item returns the kind of a list's items.
func (k kind) item() kind { return kind{k.pkg, strings.TrimSuffix(k.name, "List")} }

// in reports whether a kind is in a list. An unknown kind may be any.
func (k kind) in(list []kind) bool {
	return slices.ContainsFunc(list, func(other kind) bool { return !other.known() || other == k })
}

// kindOf returns the kind of an object or a list.
func (p *program) kindOf(v ssa.Value) (k kind) {
	concrete := func(v ssa.Value) bool { return !types.IsInterface(v.Type()) }
	for i, from := range p.origins(v, concrete) {
		named := namedOf(from.Type())
		if !concrete(from) || named == nil || named.Obj().Pkg() == nil {
			return kind{}
		}
		of := kind{named.Obj().Pkg().Path(), named.Obj().Name()}
		if i > 0 && of != k || strings.HasPrefix(of.name, "Unstructured") ||
			strings.HasPrefix(of.name, "PartialObjectMetadata") {
			return kind{}
		}
		k = of
	}
	return k
}
