package ctrlrt

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/test/require"
)

// A manager that lost its leader election must not go on beside the next leader until its member has left.
func TestALostLeaderDoesNotWaitForItsMember(t *testing.T) {
	lost := errors.New("leader election lost")
	managed := make(chan error, 1)
	managed <- lost
	m := &Manager{options: manager.Options{LeaderElection: true}}
	if err := m.stopped(managed, make(chan error)); !errors.Is(err, lost) {
		t.Errorf("%v, want %v", err, lost)
	}
}

// A context of another rota's controller is another context.
func TestAContextOfAnotherRotasController(t *testing.T) {
	hub, spoke := readerOf(t, shardConfigMaps, nil), readerOf(t, shardConfigMaps, nil)
	ctx := withAsker(t.Context(), hub.rota, &asker{controller: "configmap"})
	if askerFrom(ctx, hub.rota) == nil || askerFrom(ctx, spoke.rota) != nil {
		t.Error("the asker of a context is not that of its rota alone")
	}
}

// When a manager stops by itself, its caches do before the member has left. That is not the fault of who made them.
func TestAManagerThatStopsSaysSoBeforeItsCachesStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ending := false
	s := starter{make(chan struct{}), make(chan struct{}), func() { ending = true }}
	if err := s.Start(ctx); err != nil || !ending {
		t.Errorf("%v, the rota was told: %t", err, ending)
	}
}

// RemoveInformer removes what GetInformer gives out. The informer of a share is its controllers'.
func TestRemoveInformerLeavesTheShare(t *testing.T) {
	mgr := unstarted(t)
	require.NoError(t, mgr.kinds.shard(configMaps.GroupKind(), "configs"))
	informer := func(of cache.Cache) cache.Informer {
		t.Helper()
		i, err := of.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		require.NoError(t, err)
		return i
	}
	remove := func() {
		t.Helper()
		require.NoError(t, mgr.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
	}
	share := informer(mgr.InnerCache())
	if remove(); informer(mgr.InnerCache()) != share {
		t.Error("the share's informer was removed")
	}
	mgr.kinds.useLate(configMaps.GroupKind())
	whole, err := mgr.wholeCache()
	require.NoError(t, err)
	all := informer(whole)
	remove()
	if informer(mgr.InnerCache()) != share {
		t.Error("the share's informer was removed, that of all objects was meant")
	}
	if informer(whole) == all {
		t.Error("the informer of all objects was not removed")
	}
}

func TestReadinessAsksWhetherAnythingEverWorked(t *testing.T) {
	broken := errors.New("backend is down")
	later := rota.Failing{Controller: "later", For: time.Minute, Reconciles: 7, Err: broken}
	never := rota.Failing{Controller: "never", For: time.Minute, Reconciles: 7, Never: true, Err: broken}
	if err := neverWorked([]rota.Failing{later}); err != nil {
		t.Errorf("%v, want none: it worked before, and what it needs may be broken for all", err)
	}
	err := neverWorked([]rota.Failing{later, never})
	require.ErrorSays(t, err, "controller never", "all 7 reconciles", "since the start", "backend is down")
}
