package split

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/require"
)

// binary runs kube-controller-manager of version Verified, which ends by itself.
func binary(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs kube-controller-manager: not under -short")
	}
	path, err := assets.ControllerManager(t.Context(), os.Stderr)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

// The built-in table has the controllers that the binary lists.
func TestTableIsTheBinarys(t *testing.T) {
	version, err := binary(t, "--version")
	if err != nil || !strings.Contains(version, Verified) {
		t.Fatalf("%v: %s, want %s", err, version, Verified)
	}
	text, err := binary(t, "--help")
	require.NoError(t, err)
	want, err := ParseHelp(Verified, text)
	require.NoError(t, err)
	if d := cmp.Diff(want, catalog(t), cmp.AllowUnexported(Catalog{})); d != "" {
		t.Errorf("(-binary +table):\n%s", d)
	}
	for _, k := range known {
		for _, gate := range k.Gates {
			if !strings.Contains(text, "kube:"+gate+"=true|false") {
				t.Errorf("%s: the binary has no feature gate %s", k.Name, gate)
			}
		}
	}
}

// The binary takes each alias as a name. That it means the same by it, TestSplitForReal in cmd/rota asks a running one.
func TestAliasesAreTheBinarys(t *testing.T) {
	var aliases []string
	for _, k := range known {
		aliases = append(aliases, k.Aliases...)
	}
	config := "--kubeconfig=" + filepath.Join(t.TempDir(), "none")
	const refusal = "is not in the list of known controllers"
	out, err := binary(t, config, "--controllers="+strings.Join(aliases, ","))
	if err == nil || strings.Contains(out, refusal) {
		t.Errorf("%v: %s", err, out)
	}
	out, err = binary(t, config, "--controllers="+strings.Join(append(aliases, "nonsense"), ","))
	if err == nil || !strings.Contains(out, `nonsense\" `+refusal) {
		t.Errorf("with a name that does not exist: %v: %s", err, out)
	}
}
