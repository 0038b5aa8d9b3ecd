//go:build !rota_mutants

package mutant_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/mutant"
)

func TestOffWithoutTheTag(t *testing.T) {
	for _, info := range mutant.All() {
		t.Setenv(mutant.Variable, string(info.Mutant))
		if mutant.On(info.Mutant) || mutant.Chosen() != mutant.None {
			t.Errorf("%s is on in a build without the tag", info.Mutant)
		}
	}
}

func TestNamesDiffer(t *testing.T) {
	seen := map[mutant.Mutant]bool{mutant.None: true}
	for _, info := range mutant.All() {
		if seen[info.Mutant] || info.Package == "" || info.About == "" {
			t.Errorf("%+v: its name is another's, or something is missing", info)
		}
		seen[info.Mutant] = true
	}
}

// What is left of the mutants in a program that was built without the tag: no function, so every question was inlined, and
// no name, so what it asked for was dropped.
func TestNothingIsLeftWithoutTheTag(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	program := filepath.Join(t.TempDir(), "rota")
	output(t, "go", "build", "-o", program, "github.com/rota-dev/rota/cmd/rota")
	symbols := output(t, "go", "tool", "nm", program)
	if !bytes.Contains(symbols, []byte("rota/member.(*Member).Step")) {
		t.Fatal("the program has no members: it shows nothing")
	}
	if bytes.Contains(symbols, []byte("internal/mutant.")) {
		t.Error("the program has functions or variables of package mutant")
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range mutant.All() {
		if bytes.Contains(text, []byte(info.Mutant)) {
			t.Errorf("the program contains the name %s", info.Mutant)
		}
	}
}

// A script of package member passes with the tag, and fails with a mutant that it is about.
func TestAMutantIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of another package")
	}
	binary := filepath.Join(t.TempDir(), "member.test")
	output(t, "go", "test", "-c", "-tags", "rota_mutants", "-o", binary, "github.com/rota-dev/rota/member")
	for m, want := range map[mutant.Mutant]string{
		mutant.None:            "PASS",
		mutant.InFlightIgnored: "--- FAIL: TestR06Transfer/waits_for_what_is_in_flight",
		"LeaseFirst":           "expelled with lease", // a clause of the protocol
	} {
		cmd := exec.Command(binary, "-test.run", "^TestR0[67].*/(waits_for_what_is_in_flight|lease_first)$")
		cmd.Dir = filepath.Join("..", "..", "member")
		cmd.Env = append(os.Environ(), mutant.Variable+"="+string(m))
		out, err := cmd.CombinedOutput()
		if (err == nil) != (m == mutant.None) || !strings.Contains(string(out), want) {
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
