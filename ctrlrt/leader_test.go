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
	noError(t, err)
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	noError(t, err)
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
	noError(t, startOnce(t, mgr))
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
	noError(t, err)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	added, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {}}})
	noError(t, err)
	for _, r := range []manager.Runnable{manager.RunnableFunc(fillTokens), added} {
		noError(t, mgr.Add(r))
	}
	noError(t, whole.Add(everywhere{}))
	noError(t, startOnce(t, mgr))
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
