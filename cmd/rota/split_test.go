package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

const kubeadmManifest = "../../apiservers/split/testdata/kubeadm.yaml"

// splitRun runs `rota split kcm` with arguments.
func splitRun(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(append([]string{"split", "kcm"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// tree returns the files below a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(text)
		return err
	})
	require.NoError(t, err)
	return out
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestSplitWritesAndChecks(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "split")
	manifests := filepath.Join(out, "manifests")
	if text, err := splitRun(t, "", "--manifest", kubeadmManifest, "--out", out); err != nil || !strings.Contains(text, "wrote "+out+"/rbac.yaml") {
		t.Fatalf("%v: %s", err, text)
	}
	if d := cmp.Diff(tree(t, "../../apiservers/split/testdata/kubeadm"), tree(t, out)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the folder there is more: %v, %v", left, err)
	}
	if text, err := splitRun(t, "", "--manifest", kubeadmManifest, "--check", manifests); err != nil || text != "as planned: 3 processes in 3 groups\n" {
		t.Errorf("%v: %s", err, text)
	}
	// The old manifest beside the new ones, as kubeadm would write it.
	write(t, manifests, "kube-controller-manager.yaml", read(t, kubeadmManifest))
	text, err := splitRun(t, "", "--manifest", kubeadmManifest, "--check", manifests)
	if err == nil || !strings.Contains(text, "job-controller runs in 2: lease kube-controller-manager and lease kube-controller-manager-workloads\n") {
		t.Errorf("%v: %s", err, text)
	}
	// A group is missing.
	text, err = splitRun(t, "", "--manifest", kubeadmManifest, "--check", filepath.Join(manifests, "kube-controller-manager-garbage.yaml"),
		"--check", filepath.Join(manifests, "kube-controller-manager-cluster.yaml"))
	if err == nil || !strings.Contains(text, "job-controller runs nowhere, want group workloads\n") || strings.Contains(text, "garbage-collector") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestSplitCommandLine(t *testing.T) {
	dir := t.TempDir()
	line := []string{"kube-controller-manager", "--kubeconfig=/kcm.conf", "--service-account-private-key-file", "/sa.key"}
	flags := []string{"--kubernetes-version", "v1.36.3", "--flags", strings.Join(line, " ")}
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if text, err := splitRun(t, "", append([]string{"--kubernetes-version", "v1.36.3", "--out", one, "--"}, line...)...); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if text, err := splitRun(t, "", append(flags, "--out", two)...); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if d := cmp.Diff(tree(t, one), tree(t, two)); d != "" {
		t.Errorf("-- and --flags differ:\n%s", d)
	}
	var ps string
	for name, text := range tree(t, filepath.Join(one, "commands")) {
		if info, err := os.Stat(filepath.Join(one, "commands", name)); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s cannot be executed: %v", name, err)
		}
		_, command, _ := strings.Cut(strings.ReplaceAll(text, "\\\n", ""), "exec ")
		ps += command
	}
	if text, err := splitRun(t, "/sbin/init\n"+ps, append(flags, "--check", "-")...); err != nil {
		t.Errorf("what `ps` prints: %v: %s", err, text)
	}
	if text, err := splitRun(t, "", append(flags, "--check", filepath.Join(one, "commands"))...); err != nil {
		t.Errorf("the scripts: %v: %s", err, text)
	}
}

func TestSplitPrints(t *testing.T) {
	text, err := splitRun(t, "", "--print-groups")
	require.NoError(t, err)
	groups := write(t, t.TempDir(), "groups.yaml", text)
	for _, args := range [][]string{nil, {"--groups", groups}} {
		text, err := splitRun(t, "", append(args, "--manifest", kubeadmManifest)...)
		if err != nil || !strings.Contains(text, "garbage    kube-controller-manager-garbage    10267  10\n") ||
			!strings.Contains(text, "off, as before: selinux-warning-controller\n") {
			t.Errorf("%q: %v: %s", args, err, text)
		}
	}
}

func TestSplitOverwrite(t *testing.T) {
	dir := t.TempDir()
	groups := write(t, dir, "groups.yaml", strings.ReplaceAll(read(t, "../../apiservers/split/groups.yaml"), "name: garbage", "name: sweepers"))
	out := filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	_, err := splitRun(t, "", "--manifest", kubeadmManifest, "--out", out)
	require.NoError(t, err)
	if _, err := splitRun(t, "", "--manifest", kubeadmManifest, "--groups", groups, "--out", out); err == nil {
		t.Error("a folder was replaced without --overwrite")
	}
	_, err = splitRun(t, "", "--manifest", kubeadmManifest, "--groups", groups, "--out", out, "--overwrite")
	require.NoError(t, err)
	files := tree(t, out)
	if _, ok := files["manifests/kube-controller-manager-garbage.yaml"]; ok || files["manifests/kube-controller-manager-sweepers.yaml"] == "" {
		t.Errorf("after another grouping there are %d files, and the group of before: %v", len(files), ok)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("beside the folder there is more: %v, %v", left, err)
	}
}
