package assets

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/require"
)

// kube makes a folder like kube/, all of whose files are an hour old.
func kube(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "versions"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "etcd"), 0o755))
	for name, text := range map[string]string{
		"go.mod": "module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n", "go.sum": "", "etcd/main.go": "package main\n",
		"versions/1.9.mod": "", "versions/1.9.sum": "", "versions/1.37.mod": "", "versions/1.37.sum": "",
	} {
		write(t, filepath.Join(dir, name), text, time.Hour)
	}
	return dir
}

func write(t *testing.T, path, text string, age time.Duration) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	at := time.Now().Add(-age)
	require.NoError(t, os.Chtimes(path, at, at))
}

func TestVersionsOfAFolder(t *testing.T) {
	dir := kube(t)
	all, byDefault, err := versionsIn(dir)
	if want := []string{"1.9", "1.36", "1.37"}; !slices.Equal(all, want) || byDefault != "1.36" || err != nil {
		t.Errorf("%v by default %s, %v; want %v by default 1.36", all, byDefault, err, want)
	}
	for version, want := range map[string][2]string{
		"": {"go.mod", "kube"}, "1.36": {"go.mod", "kube"}, "1.37": {"versions/1.37.mod", "kube-1.37"},
	} {
		if modfile, folder, err := modfileOf(dir, version); modfile != want[0] || folder != want[1] || err != nil {
			t.Errorf("%q: %s, %s, %v; want %v", version, modfile, folder, err, want)
		}
	}
	for _, version := range []string{"1.38", "v1.37", "1.37.2", "../1.37"} {
		if _, _, err := modfileOf(dir, version); err == nil || !strings.Contains(err.Error(), "there are 1.9, 1.36, 1.37") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// TestFresh: a program is built again if its own modfile or code has changed, and not for other versions' sake.
func TestFresh(t *testing.T) {
	dir := kube(t)
	bin := t.TempDir()
	one, other := builder{kube: dir, modfile: "go.mod", bin: bin}, builder{kube: dir, modfile: "versions/1.37.mod", bin: bin}
	for _, c := range []struct {
		changed         string
		byDefault, v137 bool
	}{
		{"", true, true}, {"versions/1.9.mod", true, true}, {"versions/1.37.sum", true, false}, {"go.mod", false, true},
		{"etcd/main.go", false, false},
	} {
		write(t, filepath.Join(bin, etcd), "", time.Minute)
		if c.changed != "" {
			write(t, filepath.Join(dir, c.changed), "changed", 0)
		}
		if one.fresh(etcd) != c.byDefault || other.fresh(etcd) != c.v137 {
			t.Errorf("%q changed: fresh %v and %v, want %v and %v", c.changed, one.fresh(etcd), other.fresh(etcd), c.byDefault, c.v137)
		}
		if c.changed != "" {
			write(t, filepath.Join(dir, c.changed), "", time.Hour)
		}
	}
	if one.fresh(etcd, apiServer) {
		t.Error("a program that does not exist is fresh")
	}
}

// TestModfiles: each modfile is of the version in its name, throughout.
func TestModfiles(t *testing.T) {
	root, err := root()
	require.NoError(t, err)
	all, byDefault, err := versionsIn(filepath.Join(root, "kube"))
	require.NoError(t, err)
	if !strings.HasPrefix(envtestVersion, byDefault+".") {
		t.Errorf("setup-envtest fetches %s, and kube/go.mod has %s", envtestVersion, byDefault)
	}
	if len(all) < 7 {
		t.Errorf("versions %v: some are missing", all)
	}
	for _, version := range all {
		modfile, _, err := modfileOf(filepath.Join(root, "kube"), version)
		require.NoError(t, err)
		text, err := exec.Command("go", "mod", "edit", "-print", filepath.Join(root, "kube", modfile)).Output()
		if err != nil {
			t.Fatalf("%s: %v", modfile, err)
		}
		_, minor, _ := strings.Cut(version, ".")
		if version == byDefault != (modfile == "go.mod") || !strings.Contains(string(text), "\tk8s.io/kubernetes v"+version+".") {
			t.Errorf("%s is not of Kubernetes %s", modfile, version)
		}
		for line := range strings.Lines(string(text)) {
			if _, replacement, ok := strings.Cut(line, " => "); ok && !strings.Contains(line, "sample-apiserver") &&
				!strings.Contains(replacement, " v0."+minor+".") {
				t.Errorf("%s: %s is of another version", modfile, strings.TrimSpace(line))
			}
		}
	}
}
