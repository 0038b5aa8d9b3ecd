package main

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/require"
)

func TestVersionOf(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
		Deps: []*debug.Module{
			{Path: "k8s.io/client-go", Version: "v0.36.0"}, {Path: "example.com/other", Version: "v1.0.0"},
			{Path: "k8s.io/api", Version: "v0.36.0", Replace: &debug.Module{Path: "example.com/api", Version: "v0.36.1"}},
		},
	}
	got := versionOf(info, true)
	want := buildVersion{
		Version: "v1.2.3", Commit: "abc", Date: "2026-01-02T03:04:05Z", Modified: true, Go: "go1.26",
		Platform: runtime.GOOS + "/" + runtime.GOARCH, TableFormats: tableFormats{table.OldestFormat, table.Format},
		Libraries: map[string]string{"k8s.io/client-go": "v0.36.0", "k8s.io/api": "v0.36.1"},
	}
	require.Equal(t, "versionOf", want, got)
	if text := got.String(); text != "v1.2.3 abc (modified) go1.26" {
		t.Errorf("in one line: %s", text)
	}
	if text := versionOf(nil, false).String(); text != "unknown "+runtime.Version() {
		t.Errorf("without what Go notes: %s", text)
	}
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		code, text, _ := runCommand(t.Context(), "rota", args)
		if code != exitGood || strings.Count(text, "\n") != 1 || !strings.Contains(text, runtime.Version()) {
			t.Errorf("rota %s: exit code %d, %q", args, code, text)
		}
	}
	code, text, _ := runCommand(t.Context(), "rota", "version", "-o", "json")
	var got buildVersion
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != exitGood {
		t.Fatalf("exit code %d, %v in %s", code, err, text)
	}
	// A test's program notes no versions of modules with some versions of Go; formats and platform are there always.
	if got.TableFormats != (tableFormats{table.OldestFormat, table.Format}) || got.Platform == "" || got.Go == "" {
		t.Errorf("in JSON: %s", text)
	}
}

// TestReported: the modules that `rota version -o json` reports are in go.mod, so that none is left out silently.
func TestReported(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	for _, path := range libraries {
		if !regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(path) + ` v\S+$`).Match(text) {
			t.Errorf("go.mod does not require %s directly", path)
		}
	}
}
