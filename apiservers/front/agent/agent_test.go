package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/require"
)

// TestWaits: an agent without credentials waits for them, and looks after HAProxy meanwhile.
func TestWaits(t *testing.T) {
	a := alone(t, nil)
	authority(t, a.front.CA)
	a.kubeconfig = filepath.Join(a.dir, "kubeconfig")
	waits := false
	a.log = func(format string, args ...any) {
		t.Logf(format, args...)
		if !strings.Contains(format, "no credentials yet") {
			return
		}
		waits = true
		if err := os.WriteFile(a.kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a,
			clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: a}}]}`),
			0o600); err != nil {
			t.Error(err)
		}
	}
	if s := a.connect(t.Context()); s == nil || !waits || a.credentials == "" {
		t.Errorf("%v; it has waited: %v", s, waits)
	}
	was := a.credentials
	authority(t, a.front.CA) // the kubeconfig names none of its own
	if _, digest, err := a.readCredentials(); err != nil || digest == was {
		t.Errorf("other authorities are not noticed: %v", err)
	}
	a.info(t, "description: "+a.front.Description(a.certificates))
}

// TestFullDisk: what cannot be written still reaches HAProxy, which is not reloaded with a file from before.
func TestFullDisk(t *testing.T) {
	a := alone(t, nil)
	told := 0
	a.log = func(format string, args ...any) {
		if t.Logf(format, args...); strings.Contains(format, "not on disk") {
			told++
		}
	}
	before := a.haproxyProcess(t)
	blocked := filepath.Join(a.dir, front.ServersFile) // root may write everywhere, but not a file over a folder
	require.NoError(t, os.Mkdir(blocked, 0o700))
	s := front.Server{Address: "10.0.2.7:6443"}
	a.update(t.Context(), []front.Server{s})
	if seen, err := a.haproxy.look(t.Context()); err != nil || len(seen[front.Backend]) != 2 || !a.unsaved {
		t.Errorf("%v, %v, unsaved: %v; want the server in HAProxy, and not on disk", seen, err, a.unsaved)
	}
	authority(t, a.front.CA) // for which HAProxy has to be reloaded
	a.tick(t.Context())
	a.tick(t.Context())
	if told != 1 {
		t.Errorf("it was told %d times that the servers are not on disk, want once", told)
	}
	if now := a.haproxyProcess(t); now != before || !a.noReload.IsZero() {
		t.Error("HAProxy was reloaded with a file from before")
	}
	require.NoError(t, os.Remove(blocked))
	a.tick(t.Context())
	a.info(t, "description: "+a.front.Description(a.certificates))
	if known, err := readKnown(a.dir); err != nil || len(known) != 1 || a.unsaved || a.unwritten != "" {
		t.Errorf("on disk: %v, %v", known, err)
	}
}

// haproxyProcess is the number of the process that answers.
func (a *agent) haproxyProcess(t *testing.T) string {
	t.Helper()
	_ = a.haproxy.apply(t.Context(), a.servers, "") // which is nobody's
	return a.haproxy.process
}

// TestRefused: a change that HAProxy refuses is tried again, and then it is reloaded.
func TestRefused(t *testing.T) {
	a := alone(t, nil)
	spoiled := *a.front
	spoiled.CA = filepath.Join(a.dir, "none")
	a.haproxy.front = &spoiled // so that it does not take a server
	a.update(t.Context(), []front.Server{{Address: "10.0.2.7:6443"}})
	for range patience - 2 {
		a.tick(t.Context())
	}
	if !a.noReload.IsZero() || !strings.Contains(a.logged, "add server") {
		t.Errorf("HAProxy was reloaded at once: %s", a.logged)
	}
	a.tick(t.Context())
	if a.noReload.IsZero() {
		t.Error("HAProxy was not reloaded")
	}
	a.settled(t)
}

// TestOtherFront: an agent does not reload the HAProxy of another front for ever.
func TestOtherFront(t *testing.T) {
	theirs := alone(t, nil)
	f := *theirs.front
	f.Listen, f.Dir = "127.0.0.1:8443", t.TempDir()
	a := &agent{front: &f, dir: f.Dir, log: t.Logf, haproxy: &running{front: &f, admin: theirs.haproxy.admin, log: t.Logf}}
	require.NoError(t, a.first(t.Context(), nil))
	if err := await.Until(t.Context(), again/20, limit, func() string {
		a.noReload = a.noReload.Add(-again / 4)
		a.tick(t.Context())
		if !strings.Contains(a.logged, "another front also has runDir") {
			return a.logged
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	before := a.haproxyProcess(t)
	for range 3 {
		a.noReload = a.noReload.Add(-reloadLimit)
		a.tick(t.Context())
	}
	if now := a.haproxyProcess(t); now != before {
		t.Errorf("HAProxy was reloaded once more: process %s, then %s", before, now)
	}

	text, err := f.YAML()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, front.FrontFile), text, 0o600))
	if err := Run(t.Context(), Options{Dir: dir, Log: t.Logf}); err == nil || !strings.Contains(err.Error(), f.Dir) ||
		!strings.Contains(err.Error(), "one front") {
		t.Errorf("a description of another folder: %v", err)
	}
}
