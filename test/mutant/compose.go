package mutant

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// compose returns a file with all mutants that edit it. Each patch is applied to the original file, so patches of the
// same lines do not conflict. The patched version of a function is added under another name. The function itself begins
// with a call of that version, made if the mutant is active:
//
//	func (m *Member) isPlanner() bool { if rotamutant.Is("X") { return m.isPlanner_X() }
//
// No line moves.
func compose(file, text string, all []Mutant) (string, error) {
	original, err := parseFile(file, text)
	if err != nil {
		return "", err
	}
	imports := `; import rotamutant "` + Module + `/test/mutant/active"`
	c := composition{original: original, imports: imports, calls: map[int]string{}}
	for _, m := range all {
		if len(m.edits[file]) == 0 {
			continue
		}
		if err := c.add(m, m.edits[file]); err != nil {
			return "", fmt.Errorf("the patch of %s does not fit %s any more: %w", m.Name, file, err)
		}
	}
	inserts := c.calls
	inserts[original.at(original.file.Name.End())] = c.imports
	var out strings.Builder
	for i := range len(text) {
		out.WriteString(inserts[i])
		out.WriteByte(text[i])
	}
	return out.String() + c.functions.String(), nil
}

// composition is a file in the making.
type composition struct {
	original *source
	// imports follow the package clause, calls go to the beginning of functions' bodies, and functions follow the file.
	imports   string
	calls     map[int]string
	functions strings.Builder
}

// add adds what a mutant changes.
func (c *composition) add(m Mutant, edits []edit) error {
	text, err := apply(c.original.text, edits)
	if err != nil {
		return err
	}
	patched, err := parseFile(m.Name, text)
	if err != nil {
		return err
	}
	for _, spec := range patched.file.Imports {
		text := "; import " + patched.slice(spec.Pos(), spec.End())
		if !c.original.imports(spec.Path.Value) && !strings.Contains(c.imports, text) {
			c.imports += text
		}
	}
	changes, err := differing(c.original, patched)
	if err != nil {
		return err
	}
	for _, f := range changes {
		call, err := c.original.forward(f.before, m.Name)
		if err != nil {
			return err
		}
		c.calls[c.original.at(f.before.Body.Lbrace)+1] += call
		name := f.after.Name.End()
		head, rest := patched.slice(f.after.Pos(), name), patched.slice(name, f.after.End())
		fmt.Fprintf(&c.functions, "\n%s_%s%s\n", head, m.Name, rest)
	}
	return nil
}

// source is a parsed file.
type source struct {
	file *ast.File
	set  *token.FileSet
	text string
}

func parseFile(name, text string) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	return &source{file, set, text}, err
}

// at is the offset of a position in the text.
func (s *source) at(p token.Pos) int { return s.set.PositionFor(p, false).Offset }

func (s *source) slice(from, to token.Pos) string { return s.text[s.at(from):s.at(to)] }

func (s *source) imports(path string) bool {
	return slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == path })
}

// change is a function before and after a patch.
type change struct{ before, after *ast.FuncDecl }

// differing returns the functions whose bodies differ. Apart from them, only imports may differ.
func differing(a, b *source) ([]change, error) {
	as, bs := a.decls(), b.decls()
	if len(as) != len(bs) {
		return nil, errors.New("it must change the bodies of functions only, and adds or removes a declaration")
	}
	var changes []change
	for i := range as {
		f, _ := as[i].(*ast.FuncDecl)
		g, _ := bs[i].(*ast.FuncDecl)
		switch {
		case f != nil && g != nil && a.slice(f.Pos(), f.Body.Lbrace) == b.slice(g.Pos(), g.Body.Lbrace):
			if a.slice(f.Body.Lbrace, f.End()) != b.slice(g.Body.Lbrace, g.End()) {
				changes = append(changes, change{f, g})
			}
		case a.slice(as[i].Pos(), as[i].End()) != b.slice(bs[i].Pos(), bs[i].End()):
			return nil, fmt.Errorf("it must change the bodies of functions only, and changes\n%s",
				a.slice(as[i].Pos(), as[i].End()))
		}
	}
	if len(changes) == 0 {
		return nil, errors.New("it changes no function")
	}
	return changes, nil
}

// decls are the declarations of a file, without imports.
func (s *source) decls() []ast.Decl {
	return slices.DeleteFunc(slices.Clone(s.file.Decls), func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return ok && g.Tok == token.IMPORT
	})
}

// forward is the statement that calls a function's mutant version.
func (s *source) forward(f *ast.FuncDecl, mutant string) (string, error) {
	target := f.Name.Name + "_" + mutant
	if f.Recv != nil {
		names, err := names(f.Recv)
		if err != nil {
			return "", err
		}
		target = names[0] + "." + target
	}
	if types := f.Type.TypeParams; types != nil {
		names, err := names(types)
		if err != nil {
			return "", err
		}
		target += "[" + strings.Join(names, ", ") + "]"
	}
	args, err := names(f.Type.Params)
	if err != nil {
		return "", err
	}
	if n := len(f.Type.Params.List); n > 0 {
		if _, variadic := f.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	call := target + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results != nil {
		return fmt.Sprintf(" if rotamutant.Is(%q) { return %s };", mutant, call), nil
	}
	return fmt.Sprintf(" if rotamutant.Is(%q) { %s; return };", mutant, call), nil
}

// names returns the names of parameters.
func names(list *ast.FieldList) ([]string, error) {
	var names []string
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
		if len(field.Names) == 0 || slices.Contains(names, "_") {
			return nil, errors.New("a function that is patched must name all its parameters")
		}
	}
	return names, nil
}
