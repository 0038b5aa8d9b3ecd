package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/test/require"
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
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	var o fence.Options
	o.Rota.Namespace, o.Rota.Name = "operators", "website"
	require.NoError(t, parseFence(&o, "operators/website-operator", []string{"web.example.com/websites", "configmaps"}))
	want, err := fence.Manifest(o)
	require.NoError(t, err)
	if out.String() != string(want) {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	if !strings.Contains(errOut.String(), "not checked") {
		t.Errorf("on standard error: %q, want that it was not checked", errOut.String())
	}
}
