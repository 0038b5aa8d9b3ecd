package mutant_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/rota-dev/rota" // the tests are run again when it changes
	"github.com/rota-dev/rota/internal/mutant"
	"github.com/rota-dev/rota/internal/mutant/active"
	_ "github.com/rota-dev/rota/internal/sim"
)

// Every package that mutants are in compiles with all of them.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds most of the product")
	}
	root, err := mutant.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := mutant.Write(t.TempDir(), root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := mutant.All()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay}
	for _, m := range all {
		if path := strings.TrimSuffix(mutant.Module+"/"+m.Package, "/rota"); !slices.Contains(args, path) {
			args = append(args, path)
		}
	}
	output(t, "go", args...)
}

// A script of package member passes in a build with mutants, and fails with a mutant that it is about.
func TestAMutantIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of another package")
	}
	root, err := mutant.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := mutant.Write(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "member.test")
	output(t, "go", "test", "-c", "-overlay", overlay, "-o", binary, "github.com/rota-dev/rota/member")
	for m, want := range map[string]string{
		"":                "PASS",
		"InFlightIgnored": "--- FAIL: TestR06Transfer/waits_for_what_is_in_flight",
		"LeaseFirst":      "expelled with lease", // a clause of the protocol
		"Misspelt":        "there is no mutant Misspelt",
	} {
		cmd := exec.Command(binary, "-test.run", "^TestR0[67].*/(waits_for_what_is_in_flight|lease_first)$")
		cmd.Dir = filepath.Join("..", "..", "member")
		cmd.Env = append(os.Environ(), active.Variable+"="+m)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (m == "") || !strings.Contains(string(out), want) {
			t.Errorf("with mutant %q: %v, want %q in\n%s", m, err, want, out)
		}
	}
}

func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // what Output returns
			out = exit.Stderr
		}
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return out
}
