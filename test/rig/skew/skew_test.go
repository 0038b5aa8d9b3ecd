package skew

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/demo/dispatch"
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
	if err != nil {
		t.Fatal(err)
	}
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

// TestMissingCommit: whoever has too little of the history is told what to do.
func TestMissingCommit(t *testing.T) {
	repo := func(name string) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	git := func(dir string, args ...string) {
		t.Helper()
		if err := run(t.Context(), dir, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	whole := repo("whole")
	git(whole, "init", "-q")
	for range 2 {
		git(whole, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-q",
			"--allow-empty", "-m", "nothing")
	}
	shallow := repo("shallow")
	git(shallow, "clone", "-q", "--depth=1", "file://"+whole, ".")
	missing := Release{strings.Repeat("0", 40), "the release before"}
	for dir, want := range map[string]string{
		whole: "is not in this clone: `git fetch`", shallow: "`git fetch --unshallow` first", repo("none"): "is no clone",
	} {
		_, err := Programs(t.Context(), dir, missing)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "bin", "*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
