package charts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/skew"
)

// TestOlderOperators: today's chart passes the operators of releases before no flag that they do not have.
func TestOlderOperators(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("builds operators from git's history: SLOW=1 (make check WHAT=skew)")
	}
	all, err := skew.Before()
	require.NoError(t, err)
	args := into[appsv1.Deployment](t, only(rendered(t, "website"), "Deployment")[0]).Spec.Template.Spec.Containers[0].Args
	for _, before := range all {
		programs, err := skew.Programs(t.Context(), root, before)
		require.NoError(t, err)
		// It ends at the kubeconfig, which comes after the flags.
		none := filepath.Join(t.TempDir(), "none")
		for _, c := range []struct {
			args    []string
			unknown bool
		}{{args, false}, {append(args, "--of-a-later-release=1"), true}} {
			out, _ := exec.CommandContext(t.Context(), programs.Operator, append(c.args, "--kubeconfig", none)...).CombinedOutput()
			if strings.Contains(string(out), "flag provided but not defined") != c.unknown || len(out) == 0 {
				t.Errorf("%s, %q: %s", before.Commit, c.args, out)
			}
		}
	}
}
