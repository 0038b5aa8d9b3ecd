package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

// TestRefused: bad use, and a cluster that cannot be asked, have the exit code that testdata/refused.txt has, and one line
// on standard error. Nothing is printed on standard output, and no file is written.
func TestRefused(t *testing.T) {
	table := read(t, "testdata/refused.txt")
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		writeFile(t, path, text)
	}
	// edited writes a text with a change.
	edited := func(name, text, old, now string) {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("%s: no %q", name, old)
		}
		file(name, strings.ReplaceAll(text, old, now))
	}
	file("closed", `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`)
	file("garbage", "a: [")
	file("ca.crt", read(t, authorityFile(t)))
	file("python/requirements.txt", "kopf\n")
	file("empty/file", "")
	const module = "module example.com/x\n\ngo 1.25.0\n"
	file("parent/operator/go.mod", module)
	file("nothing/go.mod", module)
	file("full/etcd.yaml", "kind: Pod")
	file("service.yaml", "apiVersion: v1\nkind: Service\n")
	const dispatcher = "name: website\nkinds: [{kind: Website.web.example.com}]\ntokenFile: t\n" +
		"server: {tls: {certFile: a, keyFile: b}}\n"
	file("config.yaml", dispatcher)
	file("unknown-field.yaml", dispatcher+"names: x\n")
	file("odd-slots.yaml", dispatcher+"slots: 3\n")
	file("apiserver.yaml", read(t, apiserverManifest))
	kcm := read(t, kubeadmManifest)
	file("kcm.yaml", kcm)
	edited("scheduler.yaml", kcm, "- kube-controller-manager\n", "- kube-scheduler\n")
	edited("untagged.yaml", kcm, ":v1.36.3", "@sha256:abc")
	edited("newer.yaml", kcm, ":v1.36.3", ":v1.37.0")
	groups, err := splitRun(t, "", "--print-groups")
	require.NoError(t, err)
	const job = "  - job-controller\n"
	edited("two.yaml", groups, "  - namespace-controller\n", "  - namespace-controller\n"+job)
	edited("none.yaml", groups, job, "")
	edited("unknown.yaml", groups, job, job+"  - jobs-controler\n")
	edited("field.yaml", groups, "- name: garbage\n", "- name: garbage\n  port: 1\n")
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", "none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	before := tree(t, ".")
	for _, row := range conversation(t, table, "$DIR", dir, "$MANY", strings.TrimSuffix(strings.Repeat("a,", 51), ",")) {
		code, out, errOut := runCommand(t.Context(), append([]string{"rota"}, strings.Fields(row.line)...)...)
		if progress, rest, _ := strings.Cut(errOut, "\n"); strings.HasPrefix(progress, "rota: type-checking the module") {
			errOut = rest
		}
		if row.wrong(code, errOut) || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("rota %s: exit code %d, want %d with %q; standard error:\n%sstandard output:\n%s", row.line, code, row.code,
				row.words, errOut, out)
		}
	}
	if diff := cmp.Diff(before, tree(t, ".")); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
}
