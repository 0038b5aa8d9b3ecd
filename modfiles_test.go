package rota_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
)

// modfile is what `go mod edit -json` tells of one.
type modfile struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace, Exclude []any
}

func readModfile(t *testing.T, path string) (file modfile, direct map[string]string) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	direct = map[string]string{}
	for _, r := range file.Require {
		if !r.Indirect {
			direct[r.Path] = r.Version
		}
	}
	return file, direct
}

// TestModfilesAgree: go.mod names the lowest versions that users may have, go.latest.mod the newest ones that
// `make test-latest` runs with. They must be about the same dependencies, and the README names both.
func TestModfilesAgree(t *testing.T) {
	lowest, low := readModfile(t, "go.mod")
	latest, high := readModfile(t, "go.latest.mod")
	if lowest.Module != latest.Module || lowest.Go != latest.Go {
		t.Errorf("go.mod is for %s with go %s, go.latest.mod for %s with go %s", lowest.Module.Path, lowest.Go,
			latest.Module.Path, latest.Go)
	}
	if n := len(latest.Replace) + len(latest.Exclude) + len(lowest.Replace) + len(lowest.Exclude); n > 0 {
		t.Errorf("%d replacements or exclusions: users do not get those", n)
	}
	paths := func(m map[string]string) (out []string) {
		for path := range m {
			out = append(out, path)
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(paths(low), paths(high)); diff != "" {
		t.Errorf("direct dependencies differ; run `make tidy` (-go.mod +go.latest.mod):\n%s", diff)
	}
	for path, v := range high {
		was, err := version.ParseSemantic(low[path])
		if err != nil {
			continue // it is missing: said above
		}
		if !version.MustParseSemantic(v).AtLeast(was) {
			t.Errorf("%s: go.latest.mod has %s, below go.mod's %s", path, v, low[path])
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, path string }{
		{"controller-runtime", "sigs.k8s.io/controller-runtime"}, {"client-go, apimachinery", "k8s.io/client-go"},
	} {
		if line := fmt.Sprintf("| %s | %s | %s |", row.name, low[row.path], high[row.path]); !strings.Contains(string(readme),
			line) {
			t.Errorf("README.md has no line %q", line)
		}
	}
	for _, m := range []map[string]string{low, high} {
		if v := m["k8s.io/client-go"]; m["k8s.io/api"] != v || m["k8s.io/apimachinery"] != v {
			t.Errorf("k8s.io/api %s, apimachinery %s and client-go %s: want one version", m["k8s.io/api"],
				m["k8s.io/apimachinery"], v)
		}
	}
}
