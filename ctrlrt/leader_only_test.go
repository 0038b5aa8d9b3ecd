package ctrlrt_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Without leader election every replica is elected, so that work behind Elected would run on all of them.
func TestElectedOfEveryReplicaIsRefused(t *testing.T) {
	mgr, _ := offline(t, "elected", ctrl.Options{})
	var seen manager.Manager = mgr
	select {
	case <-seen.Elected():
		t.Error("elected before the start")
	default:
	}
	require.ErrorSays(t, startOnce(t, mgr), "leader_only_test.go:", "every replica", "AddDuty", "Joined")

	mgr, _ = offline(t, "elected-whole", ctrl.Options{})
	whole, err := mgr.Whole()
	require.NoError(t, err)
	_ = whole.Elected()
	require.ErrorSays(t, startOnce(t, mgr), "leader_only_test.go:", "every replica")
}

func TestElectedIsRefusedBeforeTheMemberJoins(t *testing.T) {
	mgr, _ := offline(t, "elected-later", ctrl.Options{})
	require.NoError(t, mgr.Add(leaderless(func(ctx context.Context) error {
		<-mgr.Elected()
		<-ctx.Done()
		return nil
	})))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	err := require.Receive(t, ended, time.Minute, "the manager goes on")
	require.ErrorSays(t, err, "leader_only_test.go:", "every replica")
}

// leaderless runs on every replica.
type leaderless func(context.Context) error

// Start implements manager.Runnable.
func (f leaderless) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (leaderless) NeedLeaderElection() bool { return false }

func TestElectedWithAnElectionOrAlone(t *testing.T) {
	mgr, _ := offline(t, "elected-stock", ctrl.Options{LeaderElection: true, LeaderElectionID: "leader",
		LeaderElectionNamespace: "operators"})
	_ = mgr.Elected()
	if err := startOnce(t, mgr); err != nil {
		t.Errorf("with leader election: %v", err)
	}
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	r, err := rota.New(cfg, rota.Options{Solo: true})
	require.NoError(t, err)
	if mgr, err = ctrlrt.NewManager(cfg, r, managerOptions()); err != nil {
		t.Fatal(err)
	}
	_ = mgr.Elected()
	if err := startOnce(t, mgr); err != nil {
		t.Errorf("with Solo: %v", err)
	}
}

// Once the member works, a call must not end it.
func TestElectedOfAMemberIsLogged(t *testing.T) {
	t.Parallel()
	h := &heard{}
	mgr := newMember(t, controlplane.For(t).Config(), controlplane.Namespace(t), "a", rota.Options{}, func(o *ctrl.Options) {
		o.Logger = funcr.New(h.write, funcr.Options{})
	})
	begin(t, mgr)
	<-mgr.Rota().Joined()
	for range 3 {
		<-mgr.Elected()
	}
	if n := h.count("Elected of the manager", "leader_only_test.go:", "AddDuty"); n != 1 {
		t.Errorf("told %d times, want once, in %s", n, h.lines)
	}
}
