package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// exclusive fails if another process has the ordinal.
const exclusive = `mkdir "$1/$0" || { echo "$0" >> "$1/twice"; exit 1; }
trap 'rmdir "$1/$0"; exit 0' TERM
while :; do sleep 0.02; done`

// Members that come and go have each ordinal once.
func TestMembersShareOrdinals(t *testing.T) {
	plane, namespace, dir := controlplane.For(t), controlplane.Namespace(t), t.TempDir()
	command := func() *Command {
		c, err := ParseCommand([]string{"sh", "-c", exclusive, "{{.Ordinal}}", dir})
		require.NoError(t, err)
		return c
	}
	start := func(pod string) (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			code, err := Run(ctx, plane.Config(), Options{
				Rota: rota.Options{Name: "run", Namespace: namespace, Identity: rota.Identity{Pod: pod}, Slots: 4,
					Key: slot.KeyName, LeaseDuration: 4 * time.Second, Logger: logr.Discard()},
				Command: command(), StopTimeout: hang, Out: os.Stdout, Err: os.Stderr,
			})
			if err == nil && code != 0 {
				err = fmt.Errorf("exit code %d", code)
			}
			done <- err
		}()
		left := false
		leave = func() {
			if left {
				return
			}
			left = true
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("%s: %v", pod, err)
				}
			case <-time.After(hang):
				t.Errorf("%s does not end", pod)
			}
		}
		t.Cleanup(leave)
		return leave
	}
	running := func(want int) {
		t.Helper()
		for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			if len(entries) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d processes run", len(entries), want)
			}
		}
	}
	a := start("a")
	running(4)
	b := start("b")
	c := start("c")
	running(4)
	a() // its processes have exited when it returns, and the others have its slots
	running(4)
	b()
	running(4)
	c()
	running(0)
	if twice, err := os.ReadFile(filepath.Join(dir, "twice")); err == nil {
		t.Errorf("ordinals of which two processes ran at once: %s", strings.Fields(string(twice)))
	}
}

func TestRefusals(t *testing.T) {
	c, err := ParseCommand([]string{"prog"})
	require.NoError(t, err)
	for want, o := range map[string]Options{
		"must be positive": {Command: c},
		"every process would work on all objects": {Command: c, StopTimeout: 1,
			Rota: rota.Options{Slots: 4, Key: slot.KeyName}},
	} {
		if _, err := Run(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
