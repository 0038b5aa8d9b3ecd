package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/fronttest"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// alone is a real HAProxy without any API server, and an agent that has begun. change may be nil.
func alone(t *testing.T, change func(*front.Front)) *agent {
	t.Helper()
	needInside(t)
	path := fronttest.HAProxy(t)
	dir := t.TempDir()
	f := front.Default()
	f.Static, f.Dir, f.RunDir, f.CA = []string{"10.0.2.9:6443"}, dir, dir, filepath.Join(dir, "ca.crt")
	authority(t, f.CA)
	if change != nil {
		change(f)
	}
	a := &agent{front: f, dir: dir, log: t.Logf}
	a.haproxy = &running{front: f, admin: filepath.Join(dir, front.AdminSocket), log: t.Logf}
	require.NoError(t, a.first(t.Context(), nil))
	cmd := exec.Command(path, "-W", "-db", "-S", filepath.Join(dir, front.MasterSocket), "-f",
		filepath.Join(dir, front.HAProxyFile))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out := &lines{log: func(s string) { t.Log("haproxy:", s) }}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, controlplane.Spawn(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	a.info(t, "description: "+f.Description(a.certificates))
	if err := await.Until(t.Context(), 20*time.Millisecond, limit, func() string { // the master starts itself anew at first
		if _, err := haproxy.Ask(t.Context(), filepath.Join(dir, front.MasterSocket), "show proc"); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// authority writes a new certificate that signs itself to where the front reads its authorities.
func authority(t *testing.T, path string) {
	t.Helper()
	cert, _ := fronttest.Certificate(t, "localhost")
	require.NoError(t, os.WriteFile(path, cert, 0o600))
}

// info waits until HAProxy tells a line of itself.
func (a *agent) info(t *testing.T, want string) {
	t.Helper()
	if err := await.Until(t.Context(), 20*time.Millisecond, limit, func() string {
		text, err := haproxy.Ask(t.Context(), a.haproxy.admin, "show info")
		switch {
		case err != nil:
			return err.Error()
		case !strings.Contains("\n"+string(text), "\n"+want+"\n"):
			return string(text)
		}
		return ""
	}); err != nil {
		t.Fatalf("want %q: %v", want, err)
	}
}

// TestReload: HAProxy is reloaded when the front or its certificates have changed, and else not.
func TestReload(t *testing.T) {
	a := alone(t, nil)
	again := func() {
		t.Helper()
		a.noReload = time.Time{}
		a.tick(t.Context())
	}
	if again(); a.logged != "" {
		t.Errorf("nothing has changed: %s", a.logged)
	}

	authority(t, a.front.CA)
	again()
	if strings.Contains(a.logged, "reload:") {
		t.Error(a.logged)
	}
	a.info(t, "description: "+a.front.Description(a.certificates))

	// front.yaml was changed, and the agent started again.
	f := *a.front
	f.MaxConnections, f.Static = 1234, append(f.Static, "10.0.2.8:6443")
	a.settled(t)
	later := &agent{front: &f, dir: a.dir, log: t.Logf, haproxy: &running{front: &f, admin: a.haproxy.admin, log: t.Logf}}
	require.NoError(t, later.first(t.Context(), nil))
	later.info(t, "Maxconn: 1334")
	if later.noReload.IsZero() {
		t.Error("it could reload again at once")
	}
	later.settled(t)
}

// settled waits until the agent is content, and the master answers again.
func (a *agent) settled(t *testing.T) {
	t.Helper()
	if err := await.Until(t.Context(), 20*time.Millisecond, limit, func() string {
		a.tick(t.Context())
		if _, err := haproxy.Ask(t.Context(), filepath.Join(a.dir, front.MasterSocket), "show proc"); err != nil {
			return err.Error()
		}
		return a.logged
	}); err != nil {
		t.Error(err)
	}
}

// TestReloadFails: what HAProxy does not take is tried again, but less and less often.
func TestReloadFails(t *testing.T) {
	a := alone(t, nil)
	require.NoError(t, os.WriteFile(a.front.CA, []byte("no certificate"), 0o600))
	var last time.Duration
	for range 8 {
		a.noReload = time.Time{}
		a.tick(t.Context())
		if a.pause < last || a.pause > reloadLimit {
			t.Errorf("the next reload may be after %v, before it was %v", a.pause, last)
		}
		last = a.pause
		if a.tick(t.Context()); a.pause != last {
			t.Error("it reloads at once")
		}
	}
	if last != reloadLimit {
		t.Errorf("in the end it reloads after %v", last)
	}
	for answer, want := range map[string]string{
		"":                               "",
		"Success=1\n--\n[NOTICE] all\n":  "",
		"Success=0\n--\n[ALERT] no CA\n": "goes on with the old one: [ALERT] no CA",
	} {
		err := reloaded(answer)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// TestHalfAdded: an agent ended right after it had added a server. The next one brings it into use.
func TestHalfAdded(t *testing.T) {
	a := alone(t, nil)
	s := front.Server{Address: "10.0.2.7:6443"}
	id := front.ServerID(s.Address)
	require.NoError(t, a.haproxy.do(t.Context(), "add server %s/%s %s %s", front.Backend, id, s.Address,
		a.front.ServerLine(front.Server{Address: s.Address, Draining: true})))
	seen, err := a.haproxy.look(t.Context())
	if err != nil || !seen[front.Backend][id].maint {
		t.Fatalf("%+v, %v: want it in maintenance", seen, err)
	}
	a.update(t.Context(), []front.Server{s})
	if seen, err = a.haproxy.look(t.Context()); err != nil || seen[front.Backend][id].maint || seen[front.Backend][id].weight != 1 || seen[front.Backend][id].up {
		t.Errorf("%+v, %v: want it with weight 1, and down until it is checked", seen, err)
	}
	if a.logged != "" {
		t.Error(a.logged)
	}
}

// TestAddedInOneLine: HAProxy does all that brings a server into use, or nothing of it.
func TestAddedInOneLine(t *testing.T) {
	a := alone(t, nil)
	for address, weight := range map[string]int{"10.0.2.7:6443": 1, "10.0.2.6:6443": 0} {
		s := front.Server{Address: address, Draining: weight == 0}
		require.NoError(t, a.haproxy.add(t.Context(), front.Backend, s))
		seen, err := a.haproxy.look(t.Context())
		if is := seen[front.Backend][front.ServerID(address)]; err != nil || is.maint || is.weight != weight {
			t.Errorf("%s: %+v, %v", address, is, err)
		}
	}
}
