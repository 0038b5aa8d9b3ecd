package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/require"
)

// As a plugin of kubectl the command calls itself `kubectl rota`.
func TestPlugin(t *testing.T) {
	for _, c := range []struct{ program, want, not string }{
		{"/usr/bin/rota", "\n  rota status website", "kubectl rota"},
		{"/usr/bin/kubectl-rota", "\n  kubectl rota status website", "\n  rota "},
		{`kubectl-rota.exe`, "Usage:\n  kubectl rota status", "\n  rota "},
	} {
		code, out, _ := runCommand(t.Context(), c.program, "status", "--help")
		if code != exitGood || !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("%s: exit code %d, want %q and not %q in\n%s", c.program, code, c.want, c.not, out)
		}
	}
	_, out, _ := runCommand(t.Context(), "rota", "status", "--help")
	if !strings.Contains(out, "--watch") || !strings.Contains(out, "--namespace") || strings.Contains(out, "--as-group") {
		t.Errorf("flags for the cluster drown the others:\n%s", out)
	}
	if _, _, errOut := runCommand(t.Context(), "kubectl-rota", "status", "--x"); !strings.Contains(errOut, "see `kubectl rota status --help`") {
		t.Errorf("standard error: %s", errOut)
	}
	// kubectl completes by a program of this name.
	if code, out, _ := runCommand(t.Context(), "kubectl_complete-rota", "stat"); code != exitGood || !strings.HasPrefix(out, "status\t") {
		t.Errorf("completion: exit code %d, %s", code, out)
	}
}

// Help begins with what people on call need, and shows every command in a group.
func TestHelpGroups(t *testing.T) {
	_, out, _ := runCommand(t.Context(), "rota", "--help")
	look, act := strings.Index(out, "\nSee what a rota does:\n"), strings.Index(out, "\nChange what a rota does:\n")
	status, drain := strings.Index(out, "\n  status "), strings.Index(out, "\n  drain ")
	if look < 0 || status < look || act < status || drain < act {
		t.Errorf("want status under what a rota does, and drain below:\n%s", out)
	}
	for _, c := range newCommand().Commands() {
		if ungrouped := []string{"version", "completion", "help"}; !c.Hidden && c.GroupID == "" && !slices.Contains(ungrouped, c.Name()) {
			t.Errorf("%s is in no group", c.Name())
		}
	}
}

func TestColor(t *testing.T) {
	env := func(set string) func(string) string {
		return func(name string) string { return map[bool]string{true: "1"}[name == set] }
	}
	for _, c := range []struct {
		mode, set string
		want      bool
	}{{"auto", "", false}, {"always", "NO_COLOR", true}, {"never", "", false}} {
		if got := colored(c.mode, env(c.set), &bytes.Buffer{}); got != c.want {
			t.Errorf("--color %s to a pipe: %v", c.mode, got)
		}
	}
	if colored("auto", env(""), os.NewFile(^uintptr(0), "none")) {
		t.Error("color in a file")
	}
	if got := (paint{on: true}).bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("painted: %q", got)
	}
	var lines strings.Builder
	require.NoError(t, paint{width: 24}.print(&lines, "\x1b[31m× \x1b[0mKeyHangs: it keeps the only worker busy\nshort\n"))
	want := "\x1b[31m× \x1b[0mKeyHangs: it keeps the\n    only worker busy\nshort\n"
	if lines.String() != want {
		t.Errorf("in 24 columns: %q, want %q", lines.String(), want)
	}
	if got := (paint{}).bad("x"); got != "x" {
		t.Errorf("not painted: %q", got)
	}
}

// The manifest for krew is in the form that krew-release-bot fills in.
func TestKrewManifest(t *testing.T) {
	text, err := os.ReadFile("../../.krew.yaml")
	require.NoError(t, err)
	var uris []string
	add := func(uri, tag string) string {
		uris = append(uris, strings.ReplaceAll(uri, "{{ .TagName }}", tag))
		return "uri: " + uris[len(uris)-1] + "\n    sha256: " + strings.Repeat("0", 64)
	}
	parsed, err := template.New("krew").Funcs(template.FuncMap{"addURIAndSha": add}).Parse(string(text))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, parsed.Execute(&out, struct{ TagName string }{"v1.2.3"}))
	var plugin struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict(out.Bytes(), &plugin, yaml.DisallowUnknownFields); err != nil && !strings.Contains(err.Error(), "apiVersion") {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	s := plugin.Spec
	if plugin.Kind != "Plugin" || plugin.Metadata.Name != "rota" || s.Version != "v1.2.3" || s.ShortDescription == "" || len(s.ShortDescription) > 60 {
		t.Errorf("plugin %+v", plugin)
	}
	for _, p := range s.Platforms {
		system, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		if !strings.Contains(p.URI, "/v1.2.3/") || !strings.Contains(p.URI, system+"_"+arch) || !strings.HasPrefix(p.Bin, "kubectl-rota") {
			t.Errorf("platform %+v", p)
		}
	}
	if len(uris) != len(s.Platforms) || len(uris) < 4 {
		t.Errorf("%d archives for %d platforms", len(uris), len(s.Platforms))
	}
}
