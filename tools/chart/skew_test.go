package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/rig/skew"
)

// TestOlderOperators: today's chart, with the values of a release before, passes that release's operator no flag that it
// does not have.
func TestOlderOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("builds operators from git's history")
	}
	all, err := skew.Before()
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range all {
		t.Run(before.Commit[:12], func(t *testing.T) {
			programs, err := skew.Programs(t.Context(), root, before)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(programs.Values)
			if err != nil {
				t.Fatal(err)
			}
			var v values
			if err := yaml.Unmarshal(text, &v); err != nil {
				t.Fatal(err)
			}
			var args []string
			for _, obj := range example(v).objects(t) {
				if obj.GetKind() == "Deployment" {
					args = into[appsv1.Deployment](t, obj).Spec.Template.Spec.Containers[0].Args
				}
			}
			if len(args) < 3 {
				t.Fatalf("the chart passes %q", args)
			}
			const unknown = "flag provided but not defined"
			run := func(args ...string) string {
				// It ends at the kubeconfig, which comes after the flags.
				args = append(args, "--kubeconfig", filepath.Join(t.TempDir(), "none"))
				out, err := exec.CommandContext(t.Context(), programs.Operator, args...).CombinedOutput()
				if err == nil {
					t.Errorf("%q: the operator ended well:\n%s", args, out)
				}
				return string(out)
			}
			if out := run(args...); strings.Contains(out, unknown) || !strings.Contains(out, "none") {
				t.Errorf("%q: %s", args, out)
			}
			if out := run(append(args, "--of-a-later-release=1")...); !strings.Contains(out, unknown) {
				t.Errorf("of a flag that it does not have, the operator says %s", out)
			}
		})
	}
}
