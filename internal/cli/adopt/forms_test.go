package adopt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// quiet are findings that most of the forms have, since they are short.
var quiet = []string{codeUnseen, codeNoManifest, codeNoElection, codeProbes, codeReplicas, codeVersion}

// TestForms: managers and manifests are made in many ways. What is not surely right is left, and the report says why.
func TestForms(t *testing.T) {
	var text strings.Builder
	for _, dir := range forms(t) {
		r := report(t, dir)
		text.WriteString("== " + strings.TrimPrefix(dir, "forms/") + "\n")
		for _, name := range r.Unread {
			text.WriteString("unread: " + name + "\n")
		}
		for _, f := range r.Findings {
			if f.Known != "" {
				fmt.Fprintf(&text, "known: %s: %s: %s\n", f.Code, f.Text, f.Known)
			}
			if f.Written || f.Level == Fine || slices.Contains(quiet, f.Code) {
				continue
			}
			fmt.Fprintf(&text, "%s: %s: %s\n", f.Level, f.Code, f.Text)
			if f.Kept != "" {
				fmt.Fprintf(&text, "  kept: %s\n", f.Kept)
			}
		}
		_, patch := changes(t, r)
		text.WriteString(patch)
	}
	golden(t, filepath.Join("testdata", "forms.diff"), text.String())
}

// TestCgo: the syntax of a package with cgo is of files that the go command writes, so nothing is written there.
func TestCgo(t *testing.T) {
	m := within(t, "forms/returned")
	p := *m.packages[0]
	p.GoFiles = []string{filepath.Join(m.Dir, "with_cgo.go")}
	for f := range m.inFile {
		m.inFile[f] = &p
	}
	r, err := read(m, "returned")
	if err != nil {
		t.Fatal(err)
	}
	if list, patch := changes(t, r); len(list) > 0 {
		t.Errorf("written:\n%s", patch)
	}
	for _, f := range r.Findings {
		if f.Code == codeManager && !strings.Contains(f.Kept, "cgo") {
			t.Errorf("the manager is left, and not said why: %q", f.Kept)
		}
	}
}

// TestRefused: what is no operator in Go is refused with what to do.
func TestRefused(t *testing.T) {
	write := func(dir, name, text string) string {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), text)
		return dir
	}
	const mod = "module example.com/x\n\ngo 1.25.0\n"
	for name, test := range map[string]struct{ dir, want string }{
		"missing":      {filepath.Join(t.TempDir(), "none"), "no such file"},
		"file":         {filepath.Join(write(t.TempDir(), "main.go", "package main"), "main.go"), "is a file"},
		"no module":    {write(t.TempDir(), "main.go", "package main"), "is in no Go module"},
		"module below": {write(t.TempDir(), "operator/go.mod", mod), "operator has one, name that"},
		"python":       {write(t.TempDir(), "requirements.txt", "kopf"), "it is a program in Python: rota adopt reads Go"},
		"ansible": {write(t.TempDir(), "watches.yaml", "- version: v1"),
			"operator of operator-sdk with Ansible or Helm"},
		"no packages": {write(t.TempDir(), "go.mod", mod), "no Go packages"},
		"no operator": {write(write(t.TempDir(), "go.mod", mod), "main.go", "package main\nfunc main() {}\n"),
			"neither controller-runtime nor client-go"},
	} {
		if _, err := Run(t.Context(), Options{Dir: test.dir}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		} else if !errors.As(err, new(*FolderError)) && name != "missing" {
			t.Errorf("%s: %v is no FolderError", name, err)
		}
	}
	for path, want := range map[string]string{
		"example.com/My_Operator": "my-operator", "github.com/kedacore/keda/v2": "keda",
	} {
		if got, err := rotaName("", path); err != nil || got != want {
			t.Errorf("name of %s: %q, %v", path, got, err)
		}
	}
}
