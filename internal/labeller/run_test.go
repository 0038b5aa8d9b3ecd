package labeller_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/test/require"
)

// label is what the tests' labellers write.
const label = "rota.dev/hash"

// start runs a labeller to the end of the test, which fails if anything of it is left then.
func start(t testing.TB, cfg *rest.Config, opts labeller.Options) *labeller.Labeller {
	t.Helper()
	before := goleak.IgnoreCurrent() // the shared control plane may be running
	if opts.Report == nil {
		opts.Report = func(err error) { t.Logf("reported: %.300v", err) }
	}
	if opts.Label == "" {
		opts.Label = label
	}
	if opts.Resources == nil {
		opts.Resources = append(opts.Resources, configMaps)
	}
	l, err := labeller.New(cfg, opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		run.Wait()
		var leaked error
		for range 5 {
			l.CloseIdle() // a connection is not idle yet just when its watch has ended
			if leaked = goleak.Find(before,
				goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"),
				goleak.IgnoreAnyFunction("net/http.(*conn).serve")); leaked == nil { // the fake's, closed later
				break
			}
		}
		if leaked != nil {
			t.Error(leaked)
		}
		t.Logf("%+v", l.Stats())
	})
	return l
}

// patience is long because tests of several packages share few cores.
const patience = 3 * time.Minute

// eventually polls until ok, and returns how long that took.
func eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(begun) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
	return time.Since(begun)
}
