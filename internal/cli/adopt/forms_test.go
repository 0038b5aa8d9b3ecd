package adopt

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestForms: managers are made in many ways. What is written compiles, and what is not surely right is left.
func TestForms(t *testing.T) {
	forms, err := load(t.Context(), filepath.Join("testdata", "forms"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	var all []Change
	for _, p := range forms.packages {
		form := *forms // as if each were an operator of its own
		form.packages, form.inFile = []*packages.Package{p}, map[*ast.File]*packages.Package{}
		for _, f := range p.Syntax {
			form.inFile[f] = p
		}
		r, err := read(&form, p.Name)
		if err != nil {
			t.Fatal(p.Name, err)
		}
		changes, err := r.Changes()
		if err != nil {
			t.Fatal(p.Name, err)
		}
		text.WriteString("== " + p.Name + "\n")
		for _, f := range r.Findings {
			if f.Level == Must && !f.Written {
				text.WriteString("left: " + f.Code + ": " + f.Text + "\n")
			}
		}
		for _, c := range changes {
			diff, err := c.Diff()
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(diff)
		}
		all = append(all, changes...)
	}
	if checked, err := (&Report{Dir: forms.Dir}).Check(t.Context(), all); err != nil || !checked {
		t.Errorf("checked %v: %v", checked, err)
	}
	golden(t, filepath.Join("testdata", "forms.diff"), text.String())
}

// TestRefused: what is no operator in Go is refused with what to do.
func TestRefused(t *testing.T) {
	write := func(dir, name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const mod = "module example.com/x\n\ngo 1.25.0\n"
	for name, test := range map[string]struct{ dir, want string }{
		"missing":      {filepath.Join(t.TempDir(), "none"), "no such file"},
		"file":         {filepath.Join(write(t.TempDir(), "main.go", "package main"), "main.go"), "is a file"},
		"no module":    {write(t.TempDir(), "main.go", "package main"), "is in no Go module"},
		"module below": {write(t.TempDir(), "operator/go.mod", mod), "operator has one, name that"},
		"python":       {write(t.TempDir(), "requirements.txt", "kopf"), "it is a program in Python: rota adopt reads Go"},
		"ansible":      {write(t.TempDir(), "watches.yaml", "- version: v1"), "operator of operator-sdk with Ansible or Helm"},
		"no packages":  {write(t.TempDir(), "go.mod", mod), "no Go packages"},
		"no operator": {write(write(t.TempDir(), "go.mod", mod), "main.go", "package main\nfunc main() {}\n"),
			"neither controller-runtime nor client-go"},
	} {
		if _, err := Run(t.Context(), Options{Dir: test.dir}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	for path, want := range map[string]string{"example.com/My_Operator": "my-operator", "github.com/kedacore/keda/v2": "keda"} {
		if got, err := rotaName("", path); err != nil || got != want {
			t.Errorf("name of %s: %q, %v", path, got, err)
		}
	}
}
