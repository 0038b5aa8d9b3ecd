package adopt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/rota-dev/rota/test/require"
)

// TestCheck: a change with which the source would not compile is refused, and so is one that cannot be type-checked.
func TestCheck(t *testing.T) {
	dir, _ := fixtures(t)
	dir = filepath.Join(dir, "named")
	r, file := &Report{Dir: dir}, filepath.Join(dir, "main.go")
	for text, want := range map[string]string{
		"package named\nvar x int = \"\"\n":                              "would not compile",
		"package named\nimport _ \"github.com/rota-dev/rota/nowhere\"\n": ErrNoRota.Error(),
	} {
		require.ErrorSays(t, r.Check(t.Context(), []Change{{File: file, New: []byte(text)}}), want)
	}
}

// TestWrite: all files are written, or none.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	change := func(name string) Change {
		return Change{File: filepath.Join(dir, name), Name: name, Old: []byte("old"), New: []byte("new")}
	}
	writeFile(t, filepath.Join(dir, "a"), "old")
	writeFile(t, filepath.Join(dir, "b"), "other")
	require.ErrorSays(t, Write([]Change{change("a"), change("b")}), "nothing was written")
	if text, _ := os.ReadFile(filepath.Join(dir, "a")); string(text) != "old" {
		t.Errorf("a is %q", text)
	}
	require.NoError(t, Write([]Change{change("a")}))
	if text, _ := os.ReadFile(filepath.Join(dir, "a")); string(text) != "new" {
		t.Errorf("a is %q", text)
	}
}

func TestRotaName(t *testing.T) {
	if got, err := rotaName("", "github.com/kedacore/My_keda/v2"); err != nil || got != "my-keda" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSupported: the versions are those of the modfiles.
func TestSupported(t *testing.T) {
	for i, name := range []string{"go.mod", "go.latest.mod"} {
		text, err := os.ReadFile("../../../" + name)
		require.NoError(t, err)
		mod, err := modfile.Parse(name, text, nil)
		require.NoError(t, err)
		for _, s := range supported {
			want := []string{s.lowest, s.newest}[i]
			if !slices.ContainsFunc(mod.Require, func(r *modfile.Require) bool { return r.Mod.Path == s.module && r.Mod.Version == want }) {
				t.Errorf("%s does not have %s %s", name, s.module, want)
			}
		}
	}
}

// TestPage: docs/migrate.md names each code.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/migrate.md")
	require.NoError(t, err)
	for code, e := range codes {
		if !strings.Contains(string(page), "`"+code+"`") || e.why == "" {
			t.Errorf("docs/migrate.md does not name %s, or codes.txt no reason", code)
		}
	}
}

// writeFile writes a file of a test, and the folders above.
func writeFile(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
}
