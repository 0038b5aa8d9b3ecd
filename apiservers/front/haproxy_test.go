package front

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front/fronttest"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func example() *Front {
	f := Default()
	f.Static = []string{"192.168.0.11:6443", "192.168.0.12:6443"}
	return f
}

var someServers = []Server{{Address: "10.0.3.4:6443"}, {Address: "10.0.3.5:6443", Draining: true}}

func TestHAProxy(t *testing.T) {
	f := example()
	golden.File(t, "testdata/haproxy.cfg", string(f.HAProxy(someServers, "")))
	golden.File(t, "testdata/haproxy-cold.cfg", string(f.HAProxy(nil, "")))
}

// TestHAProxyAccepts has HAProxy itself read the configuration of all kinds of fronts.
func TestHAProxyAccepts(t *testing.T) {
	binary := fronttest.HAProxy(t)
	dir := t.TempDir()
	certificate, key := fronttest.Certificate(t, "localhost")
	ca, client := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.pem")
	require.NoError(t, errors.Join(os.WriteFile(ca, certificate, 0o600),
		os.WriteFile(client, append(certificate, key...), 0o600)))
	for name, change := range map[string]func(*Front){
		"plain":         func(*Front) {},
		"IPv6":          func(f *Front) { f.Listen, f.Static = "[::]:7443", []string{"[fd00::1]:6443", "[fd00::2]:6443"} },
		"client":        func(f *Front) { f.Client = client },
		"no slow start": func(f *Front) { f.SlowStart.Duration = 0 },
		"limits": func(f *Front) {
			f.MaxConnections, f.Interval.Duration, f.IdleTimeout.Duration = 10, time.Minute, 240*time.Hour
		},
	} {
		f := example()
		change(f)
		f.CA, f.RunDir = ca, dir
		for _, servers := range [][]Server{nil, someServers} {
			path := filepath.Join(dir, HAProxyFile)
			require.NoError(t, os.WriteFile(path, f.HAProxy(servers, "x"), 0o600))
			out, err := exec.CommandContext(t.Context(), binary, "-c", "-f", path).CombinedOutput()
			if text := string(out); err != nil || strings.Contains(text, "WARNING") {
				t.Errorf("%s: %v: %s", name, err, text)
			}
		}
	}
}
