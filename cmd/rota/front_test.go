package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// frontRun runs `rota front` as a process would, and returns what it prints on either output.
func frontRun(t *testing.T, args ...string) (exitCode, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), append([]string{"rota", "front"}, args...), nil, &out, &errOut)
	return code, out.String() + errOut.String()
}

// authorityFile returns the path of a file with a certificate.
func authorityFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../apiservers/front/testdata/ca.crt")
	require.NoError(t, err)
	return path
}

// TestFrontWrites: without asking, as for a host that has no API server yet.
func TestFrontWrites(t *testing.T) {
	out := filepath.Join(t.TempDir(), "front")
	args := []string{"--static", "192.168.0.11:6443", "--offline", "--form", "systemd"}
	code, printed := frontRun(t, args...)
	if code != exitGood {
		t.Fatal(printed)
	}
	for range 2 {
		if code, got := frontRun(t, append(args, "--out", out, "--overwrite")...); code != exitGood {
			t.Fatal(got)
		}
	}
	files := tree(t, out)
	if len(files) != 5 {
		t.Errorf("files: %v", files)
	}
	for name, text := range files {
		if !strings.Contains(printed, "#### "+name+"\n"+text) {
			t.Errorf("%s was not printed as it was written", name)
		}
	}
	if code, got := frontRun(t, append(args, "--out", out)...); code != exitFindings || !strings.Contains(got, "is not empty") {
		t.Errorf("again: %d, %q", code, got)
	}
	write(t, out, "mine", "my own\n")
	code, got := frontRun(t, append(args, "--out", out, "--overwrite")...)
	if code != exitFindings || !strings.Contains(got, "mine was not written by this command") {
		t.Errorf("over somebody's own file: %d, %q", code, got)
	}
	code, envoy := frontRun(t, "--static", "192.168.0.11:6443", "--offline", "--form", "static-pod", "--proxy", "envoy",
		"--agent-image", "registry.example/rota:v1")
	if code != exitGood || !strings.Contains(envoy, "image: docker.io/envoyproxy/envoy:") {
		t.Errorf("%d, %s", code, envoy)
	}
}

// TestFrontAgentRefuses: what it needs from the host is named.
func TestFrontAgentRefuses(t *testing.T) {
	dir := t.TempDir()
	const kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: a}}]\ncurrent-context: a\n"
	config := write(t, dir, "kubeconfig", kubeconfig)
	for want, text := range map[string]string{"no such file": "", "is not a description of a front": "apiVersion: v1\nkind: Pod\n"} {
		dir := t.TempDir()
		if text != "" {
			write(t, dir, front.FrontFile, text)
		}
		code, got := frontRun(t, "agent", "--dir", dir, "--kubeconfig", config)
		if code != exitFindings || !strings.Contains(got, want) || !strings.Contains(got, dir+"/"+front.FrontFile) {
			t.Errorf("want %q, got %d, %q", want, code, got)
		}
	}
}

// TestFrontReal: a real API server is asked, with its certificate, and takes the manifests in a dry run.
func TestFrontReal(t *testing.T) {
	plane := controlplane.For(t)
	config := plane.Config()
	dir := t.TempDir()
	ca := write(t, dir, "ca.crt", string(config.CAData))
	address := strings.TrimPrefix(config.Host, "https://")
	out := filepath.Join(dir, "front")
	args := []string{"--static", address, "--ca", ca, "--form", "static-pod", "--agent-image", "rota:v1", "--out", out}
	if code, got := frontRun(t, args...); code != exitGood {
		t.Fatal(got)
	}
	for want, change := range map[string][]string{
		"static API server " + address + ": Get":      {"--ca", authorityFile(t)},
		"certificate is valid for":                    {"--server-name", "somewhere"},
		"client certificate " + ca:                    {"--client-cert", ca},
		"static API server 127.0.0.1:1: Get \"https:": {"--static", "127.0.0.1:1"},
	} {
		none := filepath.Join(dir, "none")
		code, got := frontRun(t, append(append(slices.Clone(args), "--out", none), change...)...)
		if _, err := os.Stat(none); err == nil || code == exitGood || !strings.Contains(got, want) {
			t.Errorf("%v: exit code %d, %q; want %q", change, code, got, want)
		}
	}
	for _, name := range []string{"rota-front.pod.yaml", "rbac.yaml"} {
		dryRun(t, config, read(t, filepath.Join(out, name)))
	}
}

// dryRun has the API server judge manifests as if they were created.
func dryRun(t *testing.T, config *rest.Config, manifests string) {
	t.Helper()
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var o unstructured.Unstructured
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &o.Object))
		if err := c.Create(t.Context(), &o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}
