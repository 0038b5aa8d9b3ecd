package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDispatchCheck: --check says what is wrong with a configuration, and flags take the place of what it says.
func TestDispatchCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	const valid = "name: website\nkinds: [{kind: Website.web.example.com}]\ntokenFile: t\n" +
		"server: {tls: {certFile: a, keyFile: b}}\n"
	for _, c := range []struct {
		config, want string
		flags        []string
	}{
		{valid, "", nil},
		{valid, "", []string{"-n", "operators", "--listen", ":9443", "--advertise", "https://a:1", "--metrics", ":9090"}},
		{valid, `server.listen "9443"`, []string{"--listen", "9443"}},
		{valid, "server.advertise", []string{"--advertise", "10.0.0.7"}},
		{valid, `metrics "x"`, []string{"--metrics", "x"}},
		{valid, "Namespace \"A\"", []string{"--namespace", "A"}},
		{valid + "names: x\n", "line 5: field names not found", nil},
		{valid + "slots: 3\n", "slot count 3", nil},
	} {
		if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := newCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"dispatch", "--check", "--config", file}, c.flags...))
		err := cmd.Execute()
		switch {
		case c.want == "" && (err != nil || out.String() != file+" is valid\n"):
			t.Errorf("%v: error %v, output %q", c.flags, err, &out)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file)):
			t.Errorf("%v: error %v, want one with %q", c.flags, err, c.want)
		}
	}
	cmd := newCommand()
	cmd.SetArgs([]string{"dispatch"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("no --config: error %v", err)
	}
}
