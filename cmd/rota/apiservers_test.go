package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
)

const apiserverManifest = "../../apiservers/deployment/testdata/kubeadm.yaml"

func apiserversRun(args ...string) (out, errOut string, code exitCode) {
	var o, e bytes.Buffer
	code = run(context.Background(), append([]string{"rota", "apiservers"}, args...), strings.NewReader(""), &o, &e)
	return o.String(), e.String(), code
}

// TestAPIServers: manifests are written, keys apart from them and readable by the user only, and never printed.
func TestAPIServers(t *testing.T) {
	h := hosttest.New(t)
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"--manifest", apiserverManifest, "--root", h.Root, "--out", dir, "--min", "3",
		"--node-selector", "role=api", "--tolerate", "api=yes:NoSchedule", "--tolerate", "spot"}
	out, errOut, code := apiserversRun(args...)
	if code != exitGood || errOut != "" {
		t.Fatalf("exit %d: %s\n%s", code, errOut, out)
	}
	for _, want := range []string{"wrote " + dir + "/manifests/deployment.yaml", "3 to 6 API servers on port 6443",
		"kube-apiserver-etcd-client", "--etcd-servers=https://10.0.0.21:2379", "note: the host's own certificate authorities"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output:\n%s", want, out)
		}
	}
	written := tree(t, dir)
	for name, text := range written {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
		if strings.HasPrefix(name, "manifests/") && strings.Contains(text, "kind: Secret\n") {
			t.Errorf("%s has a Secret", name)
		}
	}
	for _, want := range []string{"key: api\n", "value: \"yes\"\n", "operator: Exists\n", "role: api\n"} {
		if !strings.Contains(written["manifests/deployment.yaml"], want) {
			t.Errorf("no %q in the Deployment:\n%s", want, written["manifests/deployment.yaml"])
		}
	}
	if !strings.Contains(written["secrets/.gitignore"], "\n*\n") {
		t.Errorf("the Secrets are not ignored by git: %q", written["secrets/.gitignore"])
	}
	for _, line := range strings.Split(h.Read(hosttest.PKI+"apiserver.key"), "\n") {
		if len(line) > 20 && strings.Contains(out, line) {
			t.Error("a key is printed")
		}
	}

	// Again: only with --overwrite, and with --secrets=reference no Secret is left.
	if _, errOut, code := apiserversRun(args...); code != exitFindings || !strings.Contains(errOut, "--overwrite") {
		t.Errorf("exit %d: %s, want a refusal to replace", code, errOut)
	}
	if _, errOut, code := apiserversRun(append(args, "--overwrite", "--secrets", "reference")...); code != exitGood {
		t.Errorf("exit %d: %s", code, errOut)
	}
	for name := range tree(t, dir) {
		if strings.HasPrefix(name, "secrets") {
			t.Errorf("%s was written", name)
		}
	}
}

// TestAPIServersRefused: nothing is written when anything is refused, and all that is wrong is said.
func TestAPIServersRefused(t *testing.T) {
	h := hosttest.New(t)
	h.Remove(hosttest.PKI + "apiserver-etcd-client.key")
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"--manifest", apiserverManifest, "--root", h.Root, "--out", dir, "--set", "audit-log-path=/var/log/a.log"}
	out, errOut, code := apiserversRun(args...)
	if code != exitFindings || !strings.Contains(errOut, "nothing was written") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	for _, want := range []string{
		"✗ --audit-log-path=/var/log/a.log\n", "do: give --set audit-log-path=-",
		"✗ --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key\n", h.Root,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output:\n%s", want, out)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", dir, err)
	}
	// Only the missing file is refused, and not that a flag which may be repeated is.
	out, _, _ = apiserversRun("--manifest", apiserverManifest, "--root", h.Root, "--set", "service-account-issuer=https://a",
		"--set", "service-account-issuer=https://b")
	if strings.Count(out, "✗ ") != 1 {
		t.Errorf("of the missing file only:\n%s", out)
	}
}
