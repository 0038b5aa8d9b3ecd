package skew

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/demo/dispatch"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
)

// The test binary is also the replicas', dispatchers' and workers' of this release.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(rig.EnvOperator) != "":
		os.Exit(rig.OperatorMain())
	case os.Getenv(dispatch.Env) != "":
		os.Exit(dispatch.Main())
	}
	os.Exit(m.Run())
}

func TestBefore(t *testing.T) {
	all, err := Before()
	require.NoError(t, err)
	for _, r := range all {
		t.Logf("%s %s", r.Commit, r.About)
	}
	commit := strings.Repeat("0123456789", 4)
	for _, text := range []string{"", "# nothing\n", commit, commit + " \n", commit[1:] + " short\n", "v1.0 a tag\n"} {
		if all, err := parse(text); err == nil || !strings.Contains(err.Error(), "test/rig/skew/BEFORE") {
			t.Errorf("%q: %v, error %v", text, all, err)
		}
	}
}

// TestMissingCommit: the error says how to get a commit that the clone lacks, and nothing is left behind.
func TestMissingCommit(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run(t.Context(), dir, "git", "init", "-q"))
	_, err := Programs(t.Context(), dir, Release{strings.Repeat("0", 40), "the release before"})
	if err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "bin", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
