package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/dashboard"
	rotaview "github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/test/require"
)

// TestHand presses the buttons: two replicas are killed and one is stopped while a new one joins, and the run is judged
// as always.
func TestHand(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	ctx, cancel := context.WithCancel(t.Context())
	pressed := make(chan error, 1)
	open := func(
		ctx context.Context, _ *rest.Config, namespace, name string, r dashboard.Replicas,
	) (*dashboard.Server, error) {
		go func() {
			pressed <- press(ctx, r, t.Errorf)
			cancel() // as Ctrl-C does
		}()
		return dashboard.Listen(ctx, "127.0.0.1:0", dashboard.Options{
			Namespace: namespace, Name: name, Replicas: r,
			Watch: func(context.Context, func(*rotaview.Rota, error)) error { return errors.New("nobody looks") },
		})
	}
	report := small(ctx, t, Options{Story: ByHand(open)})
	require.NoError(t, <-pressed)
	if report.Members != 1 || len(report.Phases) != 1 || report.Phases[0].MovedSlots != 256 {
		t.Errorf("report: %+v", report)
	}
}

func press(ctx context.Context, r dashboard.Replicas, errorf func(string, ...any)) error {
	refused := func(what string, err error, want string) {
		if err == nil || !strings.Contains(err.Error(), want) {
			errorf("%s: %v, want %q", what, err, want)
		}
	}
	_, err := r.Add(ctx)
	refused("add during the set-up", err, "wait until")
	refused("kill during the set-up", r.Kill(ctx, "web-1"), "wait until")
	eventually := func(do func() error) error {
		return await.Until(ctx, 100*time.Millisecond, 5*time.Minute, func() string {
			if err := do(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	var pod string
	err = eventually(func() (err error) {
		pod, err = r.Add(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if pod != "web-4" {
		errorf("the new replica is %s, want web-4", pod)
	}
	// The last of them waits until the new one has joined.
	err = errors.Join(r.Kill(ctx, "web-1"), r.Stop(ctx, "web-2"), eventually(func() error { return r.Kill(ctx, "web-3") }))
	refused("kill one that is dead", r.Kill(ctx, "web-1"), "no replica")
	refused("stop one that never was", r.Stop(ctx, "web-99"), "no replica")
	refused("stop the last one", r.Stop(ctx, pod), "last replica")
	return err
}
