package rota_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/rota-dev/rota/test/require"
)

// modfile is what `go mod edit -json` tells of one.
type modfile struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Exclude []any
}

func readModfile(t *testing.T, path string) (file modfile, direct map[string]string) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", path).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &file))
	direct = map[string]string{}
	for _, r := range file.Require {
		if !r.Indirect {
			direct[r.Path] = r.Version
		}
	}
	return file, direct
}

// modfilesOf are the modfiles of the main module, from the lowest versions to the newest.
func modfilesOf(t *testing.T) []string {
	t.Helper()
	between, err := filepath.Glob("tools/versions/*.mod")
	if err != nil || len(between) == 0 {
		t.Fatalf("no modfiles in tools/versions: %v", err)
	}
	slices.SortFunc(between, func(a, b string) int {
		return semver(t, strings.TrimSuffix(filepath.Base(a), ".mod"), strings.TrimSuffix(filepath.Base(b), ".mod"))
	})
	return slices.Concat([]string{"go.mod"}, between, []string{"go.latest.mod"})
}

// semver compares two versions.
func semver(t *testing.T, a, b string) int {
	t.Helper()
	first, err := version.ParseSemantic(a)
	require.NoError(t, err)
	order, err := first.Compare(b)
	require.NoError(t, err)
	return order
}

// TestModfilesAgree: go.mod names the lowest versions that users may have, go.latest.mod the newest ones that
// `make test-latest` runs with, and tools/versions those between that `make check WHAT=versions` runs with, too. They
// must be about the same dependencies, none may need less than go.mod, and docs/versions.md names them all.
func TestModfilesAgree(t *testing.T) {
	page, err := os.ReadFile("docs/versions.md")
	require.NoError(t, err)
	paths := func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
	const runtime, client = "sigs.k8s.io/controller-runtime", "k8s.io/client-go"
	lowest, low := readModfile(t, "go.mod")
	before := low
	for _, path := range modfilesOf(t) {
		file, direct := readModfile(t, path)
		if file.Module != lowest.Module || semver(t, file.Go, lowest.Go) < 0 {
			t.Errorf("%s is for %s with go %s, go.mod for %s with go %s", path, file.Module.Path, file.Go, lowest.Module.Path,
				lowest.Go)
		}
		if n := len(file.Replace) + len(file.Exclude); n > 0 {
			t.Errorf("%s: %d replacements or exclusions: users do not get those", path, n)
		}
		if diff := cmp.Diff(paths(low), paths(direct)); diff != "" {
			t.Errorf("direct dependencies differ; run `make tidy` (-go.mod +%s):\n%s", path, diff)
			continue
		}
		for of, v := range direct {
			if strings.HasPrefix(v, "v") && semver(t, v, low[of]) < 0 {
				t.Errorf("%s: %s has %s, below go.mod's %s", of, path, v, low[of])
			}
		}
		if semver(t, direct[runtime], before[runtime]) < 0 || semver(t, direct[client], before[client]) < 0 {
			t.Errorf("%s: controller-runtime %s and client-go %s come after newer ones", path, direct[runtime], direct[client])
		}
		before = direct
		if filepath.Dir(path) == "tools/versions" && filepath.Base(path) != direct[runtime]+".mod" {
			t.Errorf("%s has controller-runtime %s: name it after that", path, direct[runtime])
		}
		if v := direct[client]; direct["k8s.io/api"] != v || direct["k8s.io/apimachinery"] != v {
			t.Errorf("%s: k8s.io/api %s, apimachinery %s and client-go %s: want one version", path, direct["k8s.io/api"],
				direct["k8s.io/apimachinery"], v)
		}
		row := fmt.Sprintf("| %s | %s | %s |", direct[runtime], direct[client], strings.TrimSuffix(file.Go, ".0"))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/versions.md has no row %q", row)
		}
	}
}

// TestDemoSharesTheControlPlanesVersions: `make demo` compiles both from source where there is no download, and what
// they have in common only once, so the modfile that it names must agree with kube/go.mod.
func TestDemoSharesTheControlPlanesVersions(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	path := regexp.MustCompile(`(?m)^KUBE_BUILD := .* -modfile=(\S+) `).FindSubmatch(makefile)
	if path == nil {
		t.Fatal("the Makefile's KUBE_BUILD names no modfile")
	}
	demo, _ := readModfile(t, string(path[1]))
	kube, _ := readModfile(t, "kube/go.mod")
	versions := map[string]string{}
	for _, r := range kube.Require {
		versions[r.Path] = r.Version
	}
	for _, r := range kube.Replace {
		versions[r.Old.Path] = r.New.Version
	}
	for _, r := range demo.Require {
		if v, ok := versions[r.Path]; ok && v != r.Version {
			t.Errorf("%s has %s %s, and kube/go.mod %s: raise the lower one", path[1], r.Path, r.Version, v)
		}
	}
}
