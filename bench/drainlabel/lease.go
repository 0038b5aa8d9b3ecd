package drainlabel

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

const (
	// leaseDuration is what a Lease without one counts as.
	leaseDuration = 15 * time.Second
	// orphanedAfter is how long after its expiry the Lease of a dead shard is deleted.
	orphanedAfter = time.Minute
	// holder is who holds the Leases of dead shards.
	holder = "sharder"

	ringLabel  = "ring.bench.rota.dev/name"
	stateLabel = "ring.bench.rota.dev/state"
)

// state is what the sharder makes of a shard by its Lease.
type state string

const (
	ready     state = "ready"
	expired   state = "expired"
	uncertain state = "uncertain" // it has been expired for its duration: the sharder acquires it
	dead      state = "dead"      // it was released, or acquired by the sharder
	orphaned  state = "orphaned"
)

// available says that objects belong to the shard.
func (s state) available() bool { return s == ready || s == expired || s == uncertain }

// durationOf is how long a renewal lasts.
func durationOf(l *coordinationv1.Lease) time.Duration {
	if s := ptr.Deref(l.Spec.LeaseDurationSeconds, 0); s > 0 {
		return time.Duration(s) * time.Second
	}
	return leaseDuration
}

// stateOf returns the state at a time, and when to look again.
func stateOf(l *coordinationv1.Lease, now time.Time) (s state, next time.Duration) {
	duration := durationOf(l)
	left := time.Duration(0) // until it expires; negative: since
	if l.Spec.RenewTime != nil {
		left = l.Spec.RenewTime.Add(duration).Sub(now)
	}
	switch {
	case ptr.Deref(l.Spec.HolderIdentity, "") != l.Name && left+orphanedAfter <= 0:
		return orphaned, 0
	case ptr.Deref(l.Spec.HolderIdentity, "") != l.Name:
		return dead, left + orphanedAfter
	case left+duration <= 0:
		return uncertain, duration
	case left <= 0:
		return expired, left + duration
	default:
		return ready, left
	}
}

// shards returns the ring of the available shards, and these.
func shards(leases []coordinationv1.Lease, now time.Time) (Ring, map[string]bool) {
	available := map[string]bool{}
	var names []string
	for i := range leases {
		if s, _ := stateOf(&leases[i], now); s.available() {
			available[leases[i].Name] = true
			names = append(names, leases[i].Name)
		}
	}
	slices.Sort(names)
	return NewRing(names...), available
}

// Lock is a shard's Lease, for a manager's LeaderElectionResourceLockInterface.
func Lock(cfg *rest.Config, namespace, ring, shard string) (resourcelock.Interface, error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cfg), "shard-lease"))
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: shard}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: shard}, Labels: map[string]string{ringLabel: ring},
	}, nil
}
