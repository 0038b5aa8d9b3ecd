package mutant

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

// root is the module's directory.
const root = "../.."

// bug is a row of the table: text that occurs once in a file, and what the bug has in its place.
type bug struct {
	name, what string
	file       string
	old, new   string
	found      check
}

// check is a run of tests of a package, with a variable of the environment if it takes one.
type check struct{ pkg, run, env string }

// script is a script of package member, by its file's name.
func script(name string) check {
	rule, name, _ := strings.Cut(name, "_")
	return check{pkg: "internal/protocol/member", run: "^Test" + rule + "/^" + name + "$"}
}

// life is a seed of the simulator.
func life(seed string) check {
	return check{pkg: "test/sim", run: "^TestChaos$", env: "SIM_SEED=" + seed}
}

// suite is a case of the conformance suite of deliveries, in memory.
func suite(mode, name string) check {
	return check{pkg: "internal/delivery", run: "^TestMemory$/^Kinds$/^" + mode + "$/^WatchList=false$/^" + name + "$"}
}

// tests returns the text of the package's tests.
func (c check) tests(t *testing.T) (all string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(root, c.pkg, "*_test.go")) // the pattern is right
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all += string(text)
	}
	return all
}

// apply returns the file with the bug.
func (b bug) apply(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, b.file))
	require.NoError(t, err)
	if n := strings.Count(string(text), b.old); n != 1 {
		t.Errorf("%s occurs %d times in %s, not once: correct this row\n%s", b.name, n, b.file, b.old)
	}
	return strings.Replace(string(text), b.old, b.new, 1)
}

// The table fits the code, and its tests exist.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range bugs {
		if b.apply(t); seen[b.name] || b.old == b.new {
			t.Errorf("there is another row %s, or it changes nothing", b.name)
		}
		seen[b.name] = true
		test, _, _ := strings.Cut(strings.TrimPrefix(b.found.run, "^"), "$")
		if test, _, _ = strings.Cut(test, "/"); !strings.Contains(b.found.tests(t), "\nfunc "+test) {
			t.Errorf("%s: there is no %s in %s: correct this row", b.name, test, b.found.pkg)
		}
	}
}

// Each bug is found by the check of its row: that fails, and neither panics nor does not compile.
func TestBugs(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes half an hour: make check WHAT=mutants")
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			out, err := b.run(t)
			switch failed := strings.Contains(out, "--- FAIL: "); {
			case err == nil:
				t.Errorf("%s: %+v does not find it: %s\n%s", b.name, b.found, b.what, out)
			case !failed, strings.Contains(out, "panic: "), strings.Contains(out, "[build failed]"):
				t.Errorf("%s: %+v crashes, which says nothing about what it looks for\n%s", b.name, b.found, out)
			}
		})
	}
}

// run runs the row's check, in whose build an overlay replaces the file.
func (b bug) run(t *testing.T) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join(root, b.file))
	require.NoError(t, err)
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	require.NoError(t, err)
	for name, text := range map[string]string{changed: b.apply(t), overlay: string(text)} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout=5m",
		"-overlay="+overlay, "-run="+b.found.run, "./"+b.found.pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=", b.found.env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
