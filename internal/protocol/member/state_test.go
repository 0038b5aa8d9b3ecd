package member

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/inspect"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// left says why a field is not visited.
var left = map[string]string{
	"Member.rng":         "makes jitter only",
	"Member.now":         "set by every Step",
	"Member.out":         "set by every Step",
	"Member.candidates":  "a cache",
	"Member.ahead":       "forgotten: what is listed ahead is listed again",
	"Member.long":        "none: the worlds of the check have no long writes",
	"Member.balance":     "empty: the worlds of the check plan by number",
	"swap.conflicts":     "makes jitter only",
	"slotState.versions": "no decision depends on them",
}

// The exhaustive check knows every field of a member's state.
func TestEveryFieldIsVisited(t *testing.T) {
	visited := selected(t)
	for _, c := range []struct {
		of reflect.Type
		by string // the receiver of visit, and what its fields are selected from
	}{
		{reflect.TypeFor[Member](), "Member m"}, {reflect.TypeFor[read](), "Member read"}, {reflect.TypeFor[lease](), "lease l"},
		{reflect.TypeFor[watch](), "watch w"}, {reflect.TypeFor[other](), "watch o"}, {reflect.TypeFor[trail](), "trail tr"},
		{reflect.TypeFor[recovery](), "recovery r"}, {reflect.TypeFor[slotState](), "slotState s"}, {reflect.TypeFor[swap](), "swap s"},
		{reflect.TypeFor[planning](), "planning p"}, {reflect.TypeFor[canaries](), "canaries n"},
	} {
		for i := range c.of.NumField() {
			name := c.of.Field(i).Name
			if _, known := left[c.of.Name()+"."+name]; !known && !visited[c.by+"."+name] {
				t.Errorf("%s.%s: say in state.go what it means, and copy it in clone if it can change", c.of.Name(), name)
			}
		}
	}
}

// selected returns the fields that the methods visit in state.go select.
func selected(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != "visit" {
			continue
		}
		of := f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				switch x := s.X.(type) {
				case *ast.Ident:
					fields[of+" "+x.Name+"."+s.Sel.Name] = true
				case *ast.SelectorExpr:
					fields[of+" "+x.Sel.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	return fields
}

// A copy shares no map, slice or pointer with its original but for what is never changed.
func TestClone(t *testing.T) {
	m := New(Config{Self: table.Member{ID: "a"}, Slots: 16, Key: slot.KeyName})
	m.watch.ids, m.watch.others["b"] = []string{"b"}, &other{}
	c := inspect.Copy(m).(*Member)
	shared := map[string]string{"Member.rng": "makes jitter only", "Member.cfg": "is never changed"}
	var compare func(path string, a, b reflect.Value)
	compare = func(path string, a, b reflect.Value) {
		if _, ok := shared[path]; ok {
			return
		}
		switch a.Kind() {
		case reflect.Struct:
			for i := range a.NumField() {
				compare(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
		case reflect.Map:
			if a.Pointer() == b.Pointer() && !a.IsNil() {
				t.Errorf("%s is shared", path)
			}
			for _, k := range a.MapKeys() {
				compare(path+"[]", a.MapIndex(k), b.MapIndex(k))
			}
		case reflect.Slice, reflect.Pointer:
			if a.Pointer() == b.Pointer() && !a.IsNil() {
				t.Errorf("%s is shared", path)
			}
		default:
		}
	}
	compare("Member", reflect.ValueOf(m).Elem(), reflect.ValueOf(c).Elem())
}
