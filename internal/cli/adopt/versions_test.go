package adopt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rota-dev/rota/permission"
)

// TestSupported: the versions are those of the modfiles.
func TestSupported(t *testing.T) {
	for i, name := range []string{"go.mod", "go.latest.mod"} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range mod.Require {
			for _, s := range supported {
				if want := []string{s.lowest, s.newest}[i]; r.Mod.Path == s.module && r.Mod.Version != want {
					t.Errorf("%s has %s %s, and this package %s", name, s.module, r.Mod.Version, want)
				}
			}
		}
	}
}

// TestPage: docs/adopt.md has a row of each code.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/adopt.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, e := range codes {
		if !bytes.Contains(page, []byte("`"+code+"`")) {
			t.Errorf("docs/adopt.md has no row of %s", code)
		}
		if e.why == "" {
			t.Errorf("%s does not say why it matters", code)
		}
	}
}

// TestRole: the Role that is written has what the project says that a member needs.
func TestRole(t *testing.T) {
	var role rbacv1.Role
	text := fmt.Sprintf(rotaRole, "shop", "")
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096).Decode(&role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(permission.Rules("shop"), role.Rules); diff != "" {
		t.Error(diff)
	}
}

// TestVersions: what counts is the version that the go command builds with, not the one that go.mod requires.
func TestVersions(t *testing.T) {
	for name, test := range map[string]struct {
		mod   string
		level Level
		text  string
	}{
		"supported": {"require " + runtimePath + " v0.22.4", Fine, "is v0.22.4, which is supported"},
		"below":     {"require " + runtimePath + " v0.19.0", Must, "is v0.19.0, below"},
		"newer":     {"require " + runtimePath + " v0.99.0", Look, "is v0.99.0, newer than"},
		"replaced by an older one": {"require " + runtimePath + " v0.22.4\nreplace " + runtimePath + " => " + runtimePath +
			" v0.20.4", Must, "is replaced by " + runtimePath + " v0.20.4, below"},
		"replaced by a newer one": {"require " + runtimePath + " v0.19.0\nreplace " + runtimePath + " => " + runtimePath +
			" v0.22.4", Fine, "is replaced by " + runtimePath + " v0.22.4, which is supported"},
		"replaced by a folder": {"require " + runtimePath + " v0.22.4\nreplace " + runtimePath + " => ./fork", Look,
			"is replaced by ./fork, whose version is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":      "module example.com/x\n\ngo 1.25.0\n\n" + test.mod + "\n",
				"fork/go.mod": "module " + runtimePath + "\n",
			} {
				writeFile(t, filepath.Join(dir, filepath.FromSlash(file)), text)
			}
			t.Setenv("GOFLAGS", "-mod=mod")
			t.Setenv("GOPROXY", "off")
			have, err := selectedIn(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			s := &source{module: &module{Dir: dir, Root: dir, selected: have}, report: &Report{}}
			s.versions()
			if f := s.report.Findings; len(f) == 0 || f[0].Level != test.level || !strings.Contains(f[0].Text, test.text) ||
				f[0].Line != 5 {
				t.Errorf("%+v, want %s and %q", f, test.level, test.text)
			}
		})
	}
}

// writeFile writes a file of a test, and the folders above.
func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
