package demo

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/dashboard"
	rotaview "github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/slot"
)

// TestHand presses the buttons: two replicas are killed and one is stopped while a new one joins, and the run is judged
// as always.
func TestHand(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
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
	report, err := Run(ctx, Options{
		Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second, Baseline: time.Second,
		Progress: t.Output(), Command: []string{self}, Dashboard: open,
	})
	if err := errors.Join(err, <-pressed); err != nil {
		t.Fatal(err)
	}
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if report.Members != 1 || len(report.Phases) != 1 || report.Phases[0].Name != "hand" || report.Phases[0].MovedSlots != 256 {
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

// TestHandCloses: after the audience's turn the buttons do nothing.
func TestHandCloses(t *testing.T) {
	h := newHand(&engine{})
	h.say("the demo ends")
	if _, err := h.Add(t.Context()); err == nil || err.Error() != "the demo ends" {
		t.Error(err)
	}
	if err := h.Stop(t.Context(), "web-1"); err == nil || err.Error() != "the demo ends" {
		t.Error(err)
	}
}

// TestInterrupted: before the audience's turn, the end of the context ends the demo, and there is no report.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	open := func(ctx context.Context, _ *rest.Config, _, _ string, r dashboard.Replicas) (*dashboard.Server, error) {
		cancel()
		return dashboard.Listen(ctx, "127.0.0.1:0", dashboard.Options{Replicas: r})
	}
	report, err := Run(ctx, Options{Objects: 60, Rate: 10, Slots: 256, Progress: t.Output(), Command: []string{self}, Dashboard: open})
	if report != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", report, err)
	}
}
