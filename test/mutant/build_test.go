package mutant_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/rota-dev/rota" // the tests are run again when what they build changes
	_ "github.com/rota-dev/rota/test/explore"
	"github.com/rota-dev/rota/test/mutant"
	"github.com/rota-dev/rota/test/mutant/active"
	_ "github.com/rota-dev/rota/test/sim"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// dir is where programs with all mutants are, once one was asked for.
var dir string

// build builds the tests of package member, the simulation and the exhaustive check with all mutants, once.
func build(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs")
	}
	if err := once(); err != nil {
		t.Fatal(err)
	}
}

var once = sync.OnceValue(func() error {
	root, err := mutant.Root(".")
	if err != nil {
		return err
	}
	if dir, err = os.MkdirTemp("", "rota-mutants-"); err != nil {
		return err
	}
	overlay, err := mutant.Write(dir, root)
	if err != nil {
		return err
	}
	all, err := mutant.All()
	if err != nil {
		return err
	}
	var packages []string // with those that nothing here runs: they must compile
	for _, m := range all {
		if path := strings.TrimSuffix(mutant.Module+"/"+m.Package, "/rota"); !slices.Contains(packages, path) {
			packages = append(packages, path)
		}
	}
	for _, args := range [][]string{
		append([]string{"build", "-overlay", overlay}, packages...),
		{"test", "-c", "-overlay", overlay, "-o", filepath.Join(dir, "member.test"), mutant.Module + "/internal/protocol/member"},
		{"build", "-overlay", overlay, "-o", filepath.Join(dir, "sim"), mutant.Module + "/test/sim/cmd"},
		{"build", "-overlay", overlay, "-o", filepath.Join(dir, "explore"), mutant.Module + "/test/explore/cmd"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
})

// run runs a program with a mutant, and says what it printed and whether it failed.
func run(t *testing.T, mutant, program string, args ...string) (out string, failed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, program), args...)
	if program == "member.test" {
		cmd.Dir = "../../internal/protocol/member"
	}
	cmd.Env = append(os.Environ(), active.Variable+"="+mutant)
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// A script of package member passes in a build with mutants, and fails with a mutant that it is about.
func TestAMutantIsCaught(t *testing.T) {
	build(t)
	for m, want := range map[string]string{
		"":                "PASS",
		"InFlightIgnored": "--- FAIL: TestR06Transfer/waits_for_what_is_in_flight",
		"LeaseFirst":      "violated: expelled with lease", // a clause of the protocol
		"Misspelt":        "there is no mutant Misspelt",
	} {
		out, failed := run(t, m, "member.test", "-test.run", "^TestR0[67].*/(waits_for_what_is_in_flight|lease_first)$")
		if failed != (m != "") || !strings.Contains(out, want) {
			t.Errorf("with mutant %q: want %q in\n%s", m, want, out)
		}
	}
}
