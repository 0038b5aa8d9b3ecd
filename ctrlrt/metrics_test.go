package ctrlrt_test

import (
	"context"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rota-dev/rota/test/require"
)

// shown returns how many rotas of a name the registry has metrics of.
func shown(t *testing.T, name string) int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	n := 0
	for _, f := range families {
		if f.GetName() != "rota_members" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "rota" && l.GetValue() == "operators/"+name {
					n++
				}
			}
		}
	}
	return n
}

// The second member of one rota in a process says that it has no metrics; one that comes after the first has ended has
// them.
func TestMetricsOfOneMemberOfARota(t *testing.T) {
	const name, told = "metrics-of-one", "This member has no metrics"
	first, h := offline(t, name, ctrl.Options{})
	if n := h.count(told); n > 0 || shown(t, name) != 1 {
		t.Errorf("the first has metrics of %d rotas and was told %d times that it has none, want 1 and 0", shown(t, name), n)
	}
	second, h := offline(t, name, ctrl.Options{})
	if n := h.count(told, "operators/"+name); n != 1 {
		t.Errorf("the second was told %d times that it has no metrics, want once, in: %s", n, h.lines)
	}
	require.NoError(t, startOnce(t, second))
	if n := shown(t, name); n != 1 {
		t.Errorf("after the end of the second: %d, want the metrics of the first", n)
	}
	require.NoError(t, startOnce(t, first))
	if n := shown(t, name); n != 0 {
		t.Errorf("after the end of the first: %d, want none", n)
	}
	third, h := offline(t, name, ctrl.Options{})
	if n := h.count(told); n > 0 || shown(t, name) != 1 {
		t.Errorf("the third has metrics of %d rotas and was told %d times that it has none, want 1 and 0", shown(t, name), n)
	}
	require.NoError(t, startOnce(t, third))
}

// Another Start takes nothing from the one that runs, neither its metrics nor its member.
func TestAManagerStartsOnce(t *testing.T) {
	const name = "starts-once"
	mgr, _ := offline(t, name, ctrl.Options{})
	begun := make(chan struct{})
	require.NoError(t, mgr.Add(leaderless(func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return nil
	})))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	<-begun
	if err := mgr.Start(ctx); err == nil || err.Error() != "ctrlrt: manager already started" {
		t.Errorf("a second Start says %v", err)
	}
	if n := shown(t, name); n != 1 {
		t.Errorf("metrics of %d rotas while the manager runs, want 1", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
	require.ErrorSays(t, mgr.Start(t.Context()), "already started")
	if n := shown(t, name); n != 0 {
		t.Errorf("metrics of %d rotas after the end, want none", n)
	}
}
