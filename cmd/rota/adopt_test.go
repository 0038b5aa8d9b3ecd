package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/cli/adopt"
	"github.com/rota-dev/rota/test/require"
)

// stock makes an operator in a folder of its own: with this repository's dependencies, and without Rota.
func stock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	sum, err := os.ReadFile("../../go.sum")
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module github.com/rota-dev/rota\n", "module example.com/shop\n", 1)
	for name, text := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": `package main

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		panic(err)
	}
	<-mgr.Elected()
}
`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// TestAdopt: the exit code is 1 as long as something must be changed, and nothing is written that cannot be
// type-checked.
func TestAdopt(t *testing.T) {
	dir := stock(t)
	code, out, errOut := runCommand(t.Context(), "rota", "adopt", "-o", "json", dir)
	var report adopt.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s%s", err, out, errOut)
	}
	if code != exitFindings || report.Must != 2 || report.Module != "example.com/shop" || report.Rota != "shop" {
		t.Errorf("exit code %d, %q, %s", code, errOut, out)
	}
	code, out, errOut = runCommand(t.Context(), "rota", "adopt", "--write", dir)
	if code != exitFindings || out != "" || !strings.Contains(errOut, "nothing was written: go.mod does not require Rota") ||
		!strings.Contains(errOut, "go get github.com/rota-dev/rota/ctrlrt ./...") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
	requireCheckout(t, dir)
	code, out, errOut = runCommand(t.Context(), "rota", "adopt", "--write", dir)
	if code != exitFindings || !strings.Contains(out, "+\tmgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{})") ||
		!strings.Contains(errOut, "1 files written; 1 findings") || !strings.Contains(errOut, "POD_NAMESPACE=default make run") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
	text, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil || !strings.Contains(string(text), `rota.Options{Name: "shop"}`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// requireCheckout has an operator require this checkout.
func requireCheckout(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-require=github.com/rota-dev/rota@v0.0.0",
		"-replace=github.com/rota-dev/rota="+root)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestAdoptKnown: a finding that a comment explains does not count, and -o wide shows it with the reason.
func TestAdoptKnown(t *testing.T) {
	dir := stock(t)
	name := filepath.Join(dir, "main.go")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	known := strings.NewReplacer("<-mgr.Elected()", "<-mgr.Elected() //rota:ignore Elected nobody waits for it",
		"\tmgr, err :=", "\t//rota:ignore Manager it stays\n\tmgr, err :=").Replace(string(text))
	require.NoError(t, os.WriteFile(name, []byte(known), 0o600))
	code, out, errOut := runCommand(t.Context(), "rota", "adopt", "-o", "wide", dir)
	if code != exitGood || !strings.Contains(out, "√ 13: this waits for the lead\n      known: nobody waits for it\n") ||
		!strings.Contains(out, "known: it stays\n") || !strings.Contains(out, "\n0 ×") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
	code, out, errOut = runCommand(t.Context(), "rota", "adopt", "--write", dir)
	if code != exitGood || out != "" || !strings.Contains(errOut, "0 files written") || strings.Contains(errOut, "make run") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
}
