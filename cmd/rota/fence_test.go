package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/fence"
)

// Without a cluster the manifest is printed all the same, and that nobody looked is told beside it.
func TestFencePrints(t *testing.T) {
	cmd := newCommand()
	var out, errOut bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs([]string{
		"fence", "website", "-n", "operators", "--service-account", "operators/website-operator",
		"--resource", "web.example.com/websites", "--resource", "/configmaps", "--kubeconfig", filepath.Join(t.TempDir(), "none"),
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var o fence.Options
	o.Rota.Namespace, o.Rota.Name = "operators", "website"
	if err := parseFence(&o, "operators/website-operator", []string{"web.example.com/websites", "configmaps"}); err != nil {
		t.Fatal(err)
	}
	want, err := fence.Manifest(o)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	if !strings.Contains(errOut.String(), "not checked") {
		t.Errorf("on standard error: %q, want that it was not checked", errOut.String())
	}
}
