package ctrlrt_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/require"
)

// heard is what a manager logged.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) write(_, args string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, args)
}

// count returns how many lines have all of the words.
func (h *heard) count(words ...string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, line := range h.lines {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			n++
		}
	}
	return n
}

// offline returns a manager of which there is no API server.
func offline(t *testing.T, name string, o ctrl.Options) (*ctrlrt.Manager, *heard) {
	t.Helper()
	h := &heard{}
	o.Logger = funcr.New(h.write, funcr.Options{})
	o.Metrics = managerOptions().Metrics
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	r, err := rota.New(cfg, rota.Options{Name: name, Namespace: "operators", Identity: rota.Identity{Pod: "p"},
		NoStockReplicas: o.LeaderElection})
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	require.NoError(t, err)
	return mgr, h
}

// startOnce starts a manager and ends it at once.
func startOnce(t *testing.T, mgr *ctrlrt.Manager) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return mgr.Start(ctx)
}

func fillTokens(context.Context) error { return nil }

// Controllers and runnables may be added while a manager runs, by several goroutines.
func TestWhatNeedsALeaderIsRefusedLaterAsWell(t *testing.T) {
	mgr, _ := offline(t, "later", ctrl.Options{})
	require.NoError(t, startOnce(t, mgr))
	var adding sync.WaitGroup
	for range 4 {
		adding.Go(func() {
			err := mgr.Add(manager.RunnableFunc(fillTokens))
			if err == nil || !strings.Contains(err.Error(), "fillTokens") ||
				!strings.Contains(err.Error(), "no leader election") {
				t.Errorf("Add after Start: %v, want that fillTokens would run on every replica", err)
			}
		})
	}
	adding.Wait()
}

// What sharded reconcilers read is empty on all members but the leader where a runnable fills it that needs a leader. A
// cache runs everywhere, though it does not say that it needs no leader.
func TestWhatRunsOnTheLeaderOnlyIsTold(t *testing.T) {
	mgr, h := offline(t, "leader-only", ctrl.Options{LeaderElection: true, LeaderElectionID: "leader",
		LeaderElectionNamespace: "operators"})
	whole, err := mgr.Whole() // a cache runs everywhere
	require.NoError(t, err)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	added, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {}}})
	require.NoError(t, err)
	for _, r := range []manager.Runnable{manager.RunnableFunc(fillTokens), added} {
		require.NoError(t, mgr.Add(r))
	}
	require.NoError(t, whole.Add(everywhere{}))
	require.NoError(t, startOnce(t, mgr))
	if n := h.count("on the leader only", "fillTokens", "leader_test.go:"); n != 1 {
		t.Errorf("told %d times that fillTokens runs on the leader only, want once, in: %s", n, h.lines)
	}
	if h.count("everywhere") > 0 || h.count("on the leader only", "cache.") > 0 {
		t.Errorf("told of what runs everywhere, in: %s", h.lines)
	}
}

// everywhere runs on every member.
type everywhere struct{}

func (everywhere) Start(context.Context) error { return nil }
func (everywhere) NeedLeaderElection() bool    { return false }

// Members without the Lease's name would work beside a stock leader. The error names the line to add.
func TestManagerRefusesElectionBesideAStockLeader(t *testing.T) {
	t.Parallel()
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	options := managerOptions()
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, "website-op", "operators"
	newManager := func(o rota.Options) error {
		o.Name, o.Namespace = "website", "operators"
		r, err := rota.New(cfg, o)
		require.NoError(t, err)
		_, err = ctrlrt.NewManager(cfg, r, options)
		return err
	}
	require.ErrorSays(t, newManager(rota.Options{}), `LeaderElectionID: "website-op", LeaderElectionNamespace: "operators"`,
		"NoStockReplicas: true")
	require.NoError(t, newManager(rota.Options{NoStockReplicas: true}))
	_, err := rota.New(cfg, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op",
		NoStockReplicas: true})
	require.ErrorSays(t, err, "LeaderElectionID", "NoStockReplicas", "leave one out")
}

// A manager whose leader election takes the Lease that the rota waits for would wait for itself. With another Lease its
// unsharded controllers would run beside those of the stock leader.
func TestManagerRefusesTheRotasElection(t *testing.T) {
	t.Parallel()
	r, err := rota.New(&rest.Config{}, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op"})
	require.NoError(t, err)
	for _, id := range []string{"website-op", "another"} {
		for _, namespace := range []string{"", "operators", "elsewhere"} {
			_, err := ctrlrt.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r, ctrl.Options{
				LeaderElection: true, LeaderElectionID: id, LeaderElectionNamespace: namespace})
			if err == nil || !strings.Contains(err.Error(), "by Lease operators/website-op, and this manager has LeaderElection") {
				t.Errorf("Lease %q in namespace %q: error %v", id, namespace, err)
			}
		}
	}
	mgr, err := ctrlrt.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r, ctrl.Options{Metrics: managerOptions().Metrics})
	require.NoError(t, err)
	require.NoError(t, mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil })))
	ctx, end := context.WithCancel(t.Context())
	end()
	err = mgr.Start(ctx)
	if err == nil || !strings.Contains(err.Error(), "AddDuty") || strings.Contains(err.Error(), "LeaderElection: true") {
		t.Errorf("error %v, want one that does not advise leader election", err)
	}
}
