package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/dispatch/reconciler"
	"github.com/rota-dev/rota/test/conformance"
	"github.com/rota-dev/rota/test/require"
)

// Results mean to the dispatcher what they mean to controller-runtime's queue.
func TestResults(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []struct {
		name   string
		result reconcile.Result
		err    error
		want   client.Result
		fails  bool
	}{
		{"success", reconcile.Result{}, nil, client.Result{}, false},
		{"after", reconcile.Result{RequeueAfter: time.Second}, nil, client.Result{After: time.Second}, false},
		{"again", reconcile.Result{Requeue: true}, nil, client.Result{Retry: true}, false},              //nolint:staticcheck // deprecated, and there
		{"both", reconcile.Result{Requeue: true, RequeueAfter: 1}, nil, client.Result{After: 1}, false}, //nolint:staticcheck // the same
		{"error", reconcile.Result{}, failure, client.Result{}, true},
		{"error and after", reconcile.Result{RequeueAfter: time.Second}, failure, client.Result{}, true},
		{"terminal", reconcile.Result{}, reconcile.TerminalError(failure), client.Result{}, false},
		{"wrapped", reconcile.Result{}, fmt.Errorf("a: %w", reconcile.TerminalError(failure)), client.Result{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			take := &client.Take{Kind: "Widget.example.com", Namespace: "a", Name: "b", Epoch: 3}
			handle := reconciler.Handler(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				if r.String() != "a/b" || reconciler.TakeFrom(ctx) != take {
					t.Errorf("request %s with %v", r, reconciler.TakeFrom(ctx))
				}
				return c.result, c.err
			}))
			got, err := handle(t.Context(), take)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%+v, %v; want %+v, an error: %t", got, err, c.want, c.fails)
			}
		})
	}
	if reconciler.TakeFrom(t.Context()) != nil {
		t.Error("a take from nowhere")
	}
}

func TestNewRefuses(t *testing.T) {
	c, err := client.New(client.Options{URLs: []string{"http://dispatchers"}})
	require.NoError(t, err)
	r := reconcile.Func(nil)
	for _, w := range []client.Worker{{Client: c}, {Client: c, Kinds: []string{"A", "B"}}, {Kinds: []string{"A"}}} {
		if _, err := reconciler.New(w, r); err == nil {
			t.Errorf("no error for %+v", w)
		}
	}
	if _, err := reconciler.New(client.Worker{Client: c, Kinds: []string{"A"}}, nil); err == nil {
		t.Error("no error without a reconciler")
	}
}

// TestRunnable: objects that fail and objects that are gone, through a dispatcher.
func TestRunnable(t *testing.T) {
	tier, err := conformance.NewTier(3*time.Second, nil)
	require.NoError(t, err)
	defer tier.Close()
	c, err := client.New(client.Options{URLs: []string{tier.URL()}})
	require.NoError(t, err)
	reconciled := make(chan string, 100)
	r := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		take := reconciler.TakeFrom(ctx)
		reconciled <- fmt.Sprintf("%s gone=%t attempt=%d", r.Name, take.Gone, take.Attempt)
		if r.Name == "fails" && take.Attempt == 1 {
			return reconcile.Result{}, errors.New("as its name says")
		}
		return reconcile.Result{}, nil
	})
	runnable, err := reconciler.New(client.Worker{Client: c, Name: "w", Kinds: []string{conformance.Kind}}, r)
	require.NoError(t, err)
	if runnable.NeedLeaderElection() {
		t.Error("only a leader would work")
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- runnable.Start(ctx) }()
	for _, step := range []struct {
		name string
		gone bool
		want []string
	}{
		{"fails", false, []string{"fails gone=false attempt=1", "fails gone=false attempt=2"}},
		{"deleted", true, []string{"deleted gone=true attempt=1"}},
	} {
		tier.Change(step.name, step.gone)
		for _, want := range step.want {
			got := require.Receive(t, reconciled, 10*time.Second, "%s was not reconciled", want)
			if got != want {
				t.Errorf("reconciled %s, want %s", got, want)
			}
		}
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if stats, _ := tier.Stats(); stats.Taken > 0 {
		t.Errorf("%d keys are taken", stats.Taken)
	}
}
