package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDispatchCheck: --check is content with a valid configuration, and flags take the place of what it says.
func TestDispatchCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, "name: website\nkinds: [{kind: Website.web.example.com}]\ntokenFile: t\n"+
		"server: {tls: {certFile: a, keyFile: b}}\n")
	for _, flags := range []string{"", "-n operators --listen :9443 --advertise https://a:1 --metrics :9090"} {
		args := append([]string{"rota", "dispatch", "--check", "--config", file}, strings.Fields(flags)...)
		if code, out, errOut := runCommand(t.Context(), args...); code != exitGood || out != file+" is valid\n" {
			t.Errorf("%s: exit code %d, %s%s", flags, code, out, errOut)
		}
	}
}
