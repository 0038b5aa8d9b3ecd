package adopt

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/cli/adopt"
)

var update = flag.Bool("update", false, "write what is found in operators instead of comparing with it")

// operators are in production, and served as Go modules with all their source. What is found in each is in
// testdata/NAME.txt: somebody has read it beside the source.
var operators = []string{
	"sigs.k8s.io/jobset@v0.10.1",
	"github.com/kedacore/keda/v2@v2.21.0",
}

// TestOperators: what is found in operators that nobody here wrote. Nothing is written.
func TestOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads operators, and compiles what they depend on")
	}
	for _, version := range operators {
		module, _, _ := strings.Cut(version, "@")
		name := filepath.Base(strings.TrimSuffix(module, "/v2"))
		t.Run(name, func(t *testing.T) {
			report, err := adopt.Run(t.Context(), adopt.Options{Dir: checkout(t, version)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := report.Changes(); err != nil {
				t.Errorf("what --write would do: %v", err)
			}
			got, file := summary(report), filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // for everybody
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got); if that is on purpose: go test -run TestOperators -update .\n%s", version, diff)
			}
		})
	}
}

// checkout returns a copy of a module that can be written to, as a clone would be.
func checkout(t *testing.T, version string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", version)
	cmd.Dir = t.TempDir() // in no module
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", version, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "operator")
	if err := os.CopyFS(dir, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// summary has a line for each manager, controller and finding.
func summary(r *adopt.Report) string {
	var b strings.Builder
	for _, m := range r.Managers {
		fmt.Fprintf(&b, "manager %s:%d, leader election %s\n", m.File, m.Line, m.LeaderElection)
	}
	for _, c := range r.Controllers {
		fmt.Fprintf(&b, "controller %s, %s:%d, %s %s\n", c.Name, c.File, c.Line, c.Becomes, c.Reason)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s %s:%d: %s\n", f.Level, f.Code, f.File, f.Line, f.Text)
	}
	fmt.Fprintf(&b, "%d to be changed, %d to be looked at, %d fine\n", r.Must, r.Look, r.Fine)
	return b.String()
}
