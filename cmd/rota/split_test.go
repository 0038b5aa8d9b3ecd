package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	groups := write(t, t.TempDir(), "groups.yaml", text)
	for _, args := range [][]string{nil, {"--groups", groups}} {
		text, err := splitRun(t, "", append(args, "--manifest", kubeadmManifest)...)
		if err != nil || !strings.Contains(text, "garbage    kube-controller-manager-garbage    10267  10\n") ||
			!strings.Contains(text, "off, as before: selinux-warning-controller\n") {
			t.Errorf("%q: %v: %s", args, err, text)
		}
	}
}

// Bad input is refused by name, and nothing is written.
func TestSplitBadUse(t *testing.T) {
	dir := t.TempDir()
	text, err := splitRun(t, "", "--print-groups")
	if err != nil {
		t.Fatal(err)
	}
	groups := func(name, old, now string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q", old)
		}
		return write(t, dir, name, strings.Replace(text, old, now, 1))
	}
	const job = "  - job-controller\n"
	two := groups("two.yaml", "  - namespace-controller\n", "  - namespace-controller\n"+job)
	none := groups("none.yaml", job, "")
	unknown := groups("unknown.yaml", job, job+"  - jobs-controler\n")
	field := groups("field.yaml", "- name: garbage\n", "- name: garbage\n  port: 1\n")
	scheduler := write(t, dir, "scheduler.yaml", strings.ReplaceAll(read(t, kubeadmManifest), "- kube-controller-manager\n", "- kube-scheduler\n"))
	service := write(t, dir, "service.yaml", "apiVersion: v1\nkind: Service\n")
	untagged := write(t, dir, "untagged.yaml", strings.Replace(read(t, kubeadmManifest), ":v1.36.3", "@sha256:abc", 1))
	newer := write(t, dir, "newer.yaml", strings.Replace(read(t, kubeadmManifest), ":v1.36.3", ":v1.37.0", 1))
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	etcd := write(t, full, "etcd.yaml", "kind: Pod")
	before := tree(t, dir)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "one of three ways"},
		{[]string{"--manifest", kubeadmManifest, "--flags", "x"}, "one of three ways"},
		{[]string{"kube-controller-manager"}, "a command line goes after --"},
		{[]string{"--flags", "kube-controller-manager"}, "--kubernetes-version"},
		{[]string{"--flags", "kube-scheduler", "--kubernetes-version", "v1.36.3"}, `"kube-scheduler"`},
		{[]string{"--manifest", untagged}, "nothing says the version"},
		{[]string{"--manifest", newer}, "controllers of v1.37.0 are not known"},
		{[]string{"--manifest", newer, "--controllers-list", etcd}, "is not the output of `kube-controller-manager --help`"},
		{[]string{"--manifest", kubeadmManifest, "--kubernetes-version", "v1.36.1"}, "but the image in"},
		{[]string{"--manifest", "/no/such"}, "/no/such"},
		{[]string{"--manifest", scheduler}, `scheduler.yaml is no manifest of kube-controller-manager: container kube-controller-manager: the command is "kube-scheduler"`},
		{[]string{"--manifest", service}, `service.yaml is no manifest of kube-controller-manager: it is v1 "Service"`},
		{[]string{"--manifest", kubeadmManifest, "--groups", two}, "job-controller is in 2 groups: workloads, garbage"},
		{[]string{"--manifest", kubeadmManifest, "--groups", none}, "job-controller is in no group"},
		{[]string{"--manifest", kubeadmManifest, "--groups", unknown}, `"jobs-controler"; the nearest name is job-controller`},
		{[]string{"--manifest", kubeadmManifest, "--groups", field}, `unknown field "port"`},
		{[]string{"--manifest", kubeadmManifest, "--overwrite"}, "--overwrite is for --out"},
		{[]string{"--manifest", kubeadmManifest, "--kubeconfig", "x"}, "--kubeconfig is for --check-cluster"},
		{[]string{"--manifest", kubeadmManifest, "--check", "/no/such"}, "/no/such"},
		{[]string{"--manifest", kubeadmManifest, "--check-cluster", "--kubeconfig", "/no/such"}, "/no/such"},
	} {
		out := filepath.Join(dir, "out")
		args := c.args
		if !slices.ContainsFunc(args, func(a string) bool {
			return strings.HasPrefix(a, "--check") || a == "--overwrite" || a == "--kubeconfig"
		}) {
			args = append([]string{"--out", out}, args...)
		}
		if text, err := splitRun(t, "", args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q\n%s", args, err, c.want, text)
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("%q: something was written", args)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--out", full}, "full is not empty: it has " + etcd},
		{[]string{"--out", full, "--overwrite"}, etcd + " was not written by this command"},
		{[]string{"--out", etcd}, "is no folder"},
		{[]string{"--out", full, "--check", full}, "--out or --check"},
	} {
		if _, err := splitRun(t, "", append(c.args, "--manifest", kubeadmManifest)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	if d := cmp.Diff(before, tree(t, dir)); d != "" {
		t.Errorf("bad input has changed files:\n%s", d)
	}
}

func TestSplitOverwrite(t *testing.T) {
	dir := t.TempDir()
	groups := write(t, dir, "groups.yaml", strings.ReplaceAll(read(t, "../../apiservers/split/groups.yaml"), "name: garbage", "name: sweepers"))
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil { // an empty folder will do
		t.Fatal(err)
	}
	if _, err := splitRun(t, "", "--manifest", kubeadmManifest, "--out", out); err != nil {
		t.Fatal(err)
	}
	if _, err := splitRun(t, "", "--manifest", kubeadmManifest, "--groups", groups, "--out", out); err == nil {
		t.Error("a folder was replaced without --overwrite")
	}
	if _, err := splitRun(t, "", "--manifest", kubeadmManifest, "--groups", groups, "--out", out, "--overwrite"); err != nil {
		t.Fatal(err)
	}
	files := tree(t, out)
	if _, ok := files["manifests/kube-controller-manager-garbage.yaml"]; ok || files["manifests/kube-controller-manager-sweepers.yaml"] == "" {
		t.Errorf("after another grouping there are %d files, and the group of before: %v", len(files), ok)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("beside the folder there is more: %v, %v", left, err)
	}
}
