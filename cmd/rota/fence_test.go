package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/fence"
)

func TestFenceBadUse(t *testing.T) {
	const good = " -n a --service-account a/b --resource configmaps"
	for args, want := range map[string]string{
		"fence":        "name of one rota",
		"fence a b":    "got 2 names",
		"fence a":      "namespace of the rota with -n",
		"fence a -n b": "as in --service-account",
		"fence a -n b --service-account c --resource d":          "want NAMESPACE/NAME",
		"fence a -n b --service-account b/c":                     "as in --resource",
		"fence a -n b --service-account b/c --resource d.e":      "such as e/d",
		"fence a -n b --service-account b/c --resource apps/d/s": "leave /s out",
		"fence A" + good: `name of the rota "A"`,
		"fence a" + good + " --apply --kubeconfig /no/x":           "/no/x",
		"fence a" + good + " --resource configmaps":                "named twice",
		"fence a" + good + " --resource Deployments":               "plural in lower case",
		"fence a -n B --service-account b/c --resource configmaps": `namespace of the rota "B"`,
	} {
		cmd := newCommand()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rota %s: %v, want an error with %q", args, err, want)
		}
	}
}

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
