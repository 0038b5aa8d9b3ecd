package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
trap 'rm -r "$1/$0"; exit 0' TERM
touch "$1/$0/$2"
while :; do sleep 0.02; done`

// Members that come and go have each ordinal once.
func TestMembersShareOrdinals(t *testing.T) {
	plane, namespace, dir := controlplane.For(t), controlplane.Namespace(t), t.TempDir()
	command := func(pod string) *Command {
		c, err := ParseCommand([]string{"sh", "-c", exclusive, "{{.Ordinal}}", dir, pod})
		require.NoError(t, err)
		return c
	}
	start := func(pod string) (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			code, err := Run(ctx, plane.Config(), Options{
				Rota: rota.Options{Name: "run", Namespace: namespace, Identity: rota.Identity{Pod: pod}, Slots: 4,
					Key: slot.KeyName, LeaseDuration: 4 * time.Second, FenceDelay: 2 * time.Second, Logger: logr.Discard()},
				Command: command(pod), StopTimeout: hang, Out: os.Stdout, Err: os.Stderr,
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
	// running waits until so many processes run, and each of the members has one.
	running := func(want int, members ...string) {
		t.Helper()
		for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
			all, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			require.NoError(t, err)
			of := map[string]bool{}
			for _, path := range all {
				of[filepath.Base(path)] = true
			}
			if len(all) == want && !slices.ContainsFunc(members, func(m string) bool { return !of[m] }) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("these processes run: %v", all)
			}
		}
	}
	a := start("a")
	running(4, "a")
	b := start("b")
	running(4, "a", "b")
	c := start("c")
	running(4, "a", "b", "c")
	a() // its processes have exited when it returns, and the others have its slots
	running(4, "b", "c")
	b()
	running(4, "c")
	c()
	running(0)
	if twice, err := os.ReadFile(filepath.Join(dir, "twice")); err == nil {
		t.Errorf("ordinals of which two processes ran at once: %s", strings.Fields(string(twice)))
	}
}

func TestRefusals(t *testing.T) {
	c, err := ParseCommand([]string{"prog"})
	require.NoError(t, err)
	o := Options{Command: c, StopTimeout: 1}
	_, err = Run(t.Context(), nil, o)
	require.ErrorSays(t, err, "must be positive")
	o.Rota.FenceDelay = 1
	_, err = Run(t.Context(), nil, o)
	require.ErrorSays(t, err, "every process would work on all objects")
}
