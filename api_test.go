package rota_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

const apiFile = "docs/api.txt"

const apiHead = `# What the public packages export. TestAPI compares it with the code. Whoever changes it on purpose writes it anew:
#   go test -run TestAPI -update .
`

// TestAPI: what users can name changes on purpose only, and docs/versions.md says of each package that it is stable. With
// -v it counts the names of each package.
func TestAPI(t *testing.T) {
	now := api(t)
	if golden.Updating() {
		require.NoError(t, os.WriteFile(apiFile, []byte(apiHead+strings.Join(now, "\n")+"\n"), 0o644))
	}
	data, err := os.ReadFile(apiFile)
	require.NoError(t, err)
	recorded := strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(data), apiHead), "\n"), "\n")
	if added, removed := compareAPI(recorded, now); len(added)+len(removed) > 0 {
		t.Errorf("the public API is not what %s says:\n%s\nIf that is on purpose: go test -run TestAPI -update .",
			apiFile, strings.Join(append(removed, added...), "\n"))
	}
	policy, err := os.ReadFile("docs/versions.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Go API \|.*$`).Find(policy)
	for _, line := range now {
		if name, ok := strings.CutPrefix(line, "package github.com/rota-dev/"); ok {
			if name := strings.TrimPrefix(name, "rota/"); !bytes.Contains(row, []byte("`"+name+"`")) {
				t.Errorf("docs/versions.md does not name the package %s in its row about the Go API:\n%s", name, row)
			}
		}
	}
}

func TestCompareAPI(t *testing.T) {
	added, removed := compareAPI(
		[]string{"", "package a", "func F()", "func G()", "", "package b", "func F()"},
		[]string{"", "package a", "func F()", "", "package b", "func F()", "func H()"})
	if diff := cmp.Diff([]string{"+ b: func H()"}, added); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"- a: func G()"}, removed); diff != "" {
		t.Error(diff)
	}
}

// compareAPI names the lines that only one of two listings has, each with its package.
func compareAPI(old, now []string) (added, removed []string) {
	lines := func(listing []string) map[string]bool {
		all, in := map[string]bool{}, ""
		for _, line := range listing {
			if p, ok := strings.CutPrefix(line, "package "); ok {
				in = p
			} else if line != "" {
				all[in+": "+line] = true
			}
		}
		return all
	}
	only := func(sign string, these, others map[string]bool) (only []string) {
		for _, line := range slices.Sorted(maps.Keys(these)) {
			if !others[line] {
				only = append(only, sign+" "+line)
			}
		}
		return only
	}
	return only("+", lines(now), lines(old)), only("-", lines(old), lines(now))
}

// beside has the folders beside the library. Nothing there is promised to anybody.
var beside = regexp.MustCompile(`^(apiservers|bench|clients|demo|examples|test)/`)

// api lists what the public packages export, a line for each constant, variable, function, type, field and method.
func api(t *testing.T) (lines []string) {
	t.Helper()
	type pkg struct{ ImportPath, Name, Export string }
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var public []string
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		rel, ours := strings.CutPrefix(p.ImportPath+"/", module+"/")
		if ours && p.Name != "main" && !strings.Contains("/"+rel, "/internal/") && !beside.MatchString(rel) {
			public = append(public, p.ImportPath)
		}
	}
	read := importer.ForCompiler(token.NewFileSet(), "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	slices.Sort(public)
	for _, path := range public {
		p, err := read.Import(path)
		require.NoError(t, err)
		declared, names := declarations(p)
		if testing.Verbose() {
			t.Logf("%s: %d names, %d with fields and methods", path, names, len(declared))
		}
		lines = append(append(lines, "", "package "+path), declared...)
	}
	return lines
}

// declarations lists what a package exports, and counts what is exported at its top level.
func declarations(p *types.Package) (lines []string, names int) {
	name := qualifier(p)
	for _, n := range p.Scope().Names() {
		obj := p.Scope().Lookup(n)
		if !obj.Exported() {
			continue
		}
		names++
		switch obj := obj.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("%s = %s", types.ObjectString(obj, name), obj.Val().ExactString()))
		case *types.Var:
			lines = append(lines, types.ObjectString(obj, name))
			if of, ok := types.Unalias(obj.Type()).(*types.Named); ok && of.Obj().Pkg() == p && !of.Obj().Exported() {
				lines = append(lines, members(of, name)...)
			}
		case *types.TypeName:
			lines = append(append(lines, typeLine(obj, name)), members(obj.Type(), name)...)
		default:
			lines = append(lines, types.ObjectString(obj, name))
		}
	}
	return lines, names
}

var apiVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// qualifier writes types of other packages as most files that import them do: corev1.Pod.
func qualifier(self *types.Package) types.Qualifier {
	return func(p *types.Package) string {
		switch {
		case p == self:
			return ""
		case apiVersion.MatchString(p.Name()):
			return path.Base(path.Dir(p.Path())) + p.Name()
		}
		return p.Name()
	}
}

// typeLine writes a type without its fields and methods, which have lines of their own.
func typeLine(obj *types.TypeName, name types.Qualifier) string {
	head := types.TypeString(obj.Type(), name)
	if named, ok := obj.Type().(*types.Named); ok && named.TypeParams() != nil {
		var list []string
		for p := range named.TypeParams().TypeParams() {
			list = append(list, p.String()+" "+types.TypeString(p.Constraint(), name))
		}
		head = obj.Name() + "[" + strings.Join(list, ", ") + "]"
	}
	if obj.IsAlias() {
		return "type " + obj.Name() + " = " + types.TypeString(types.Unalias(obj.Type()), name)
	}
	switch under := obj.Type().Underlying().(type) {
	case *types.Struct:
		return "type " + head + " struct"
	case *types.Interface:
		if under.IsMethodSet() {
			return "type " + head + " interface"
		}
	}
	return "type " + head + " " + types.TypeString(obj.Type().Underlying(), name)
}

// members lists the exported fields and methods of a type, also those promoted from fields that are not exported.
func members(of types.Type, name types.Qualifier) (lines []string) {
	named, ok := types.Unalias(of).(*types.Named)
	if !ok {
		return nil
	}
	self := named.Obj().Name()
	hidden := func(t types.Type, path []int) bool { // whether the way through embedded fields leads past no exported one
		for _, i := range path[:len(path)-1] {
			field := deref(t).Underlying().(*types.Struct).Field(i)
			if field.Exported() {
				return false
			}
			t = field.Type()
		}
		return true
	}
	var fields func(s *types.Struct)
	fields = func(s *types.Struct) {
		for f := range s.Fields() {
			if f.Exported() {
				embedded := ""
				if f.Embedded() {
					embedded = "embedded "
				}
				lines = append(lines, fmt.Sprintf("field %s.%s %s%s", self, f.Name(), embedded, types.TypeString(f.Type(), name)))
			} else if inner, ok := deref(f.Type()).Underlying().(*types.Struct); ok && f.Embedded() {
				fields(inner)
			}
		}
	}
	if s, ok := named.Underlying().(*types.Struct); ok {
		fields(s)
	}
	methods := types.NewMethodSet(named)
	if !types.IsInterface(named) {
		methods = types.NewMethodSet(types.NewPointer(named))
	}
	for sel := range methods.Methods() {
		if sel.Obj().Exported() && hidden(named, sel.Index()) {
			receiver := self
			if _, pointer := types.Unalias(sel.Obj().Type().(*types.Signature).Recv().Type()).(*types.Pointer); pointer {
				receiver = "*" + self
			}
			signature := strings.TrimPrefix(types.TypeString(sel.Type(), name), "func")
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", receiver, sel.Obj().Name(), signature))
		}
	}
	slices.Sort(lines)
	return lines
}

func deref(t types.Type) types.Type {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		return ptr.Elem()
	}
	return t
}
