package ctrlrt_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

var (
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
)

// journal records who reconciled what, over all members of a test.
type journal struct {
	mu sync.Mutex
	// busy is who is reconciling a key now.
	busy map[types.NamespacedName]string
	// last is, per key, who reconciled it last, with which epoch and resourceVersion.
	last map[types.NamespacedName]visit
	// kept are the members that keep something of a key: they reconciled it, and have not lost it since.
	kept  map[types.NamespacedName]map[string]bool
	count int
	err   error
}

type visit struct {
	member  string
	epoch   uint64
	version string
}

func newJournal() *journal {
	return &journal{busy: map[types.NamespacedName]string{}, last: map[types.NamespacedName]visit{},
		kept: map[types.NamespacedName]map[string]bool{}}
}

// lose is a member's OnLost.
func (j *journal) lose(member string, key types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if (j.busy[key] == member || !j.kept[key][member]) && j.err == nil {
		j.err = fmt.Errorf("%s: OnLost of %s while it reconciles the key, or twice", key, member)
	}
	delete(j.kept[key], member)
}

// keptTwice returns a key of which several members keep something, or "".
func (j *journal) keptTwice() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, by := range j.kept {
		if len(by) > 1 {
			return fmt.Sprintf("%s is kept by %v", key, by)
		}
	}
	return ""
}

func (j *journal) enter(member string, key types.NamespacedName, epoch uint64, version string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, ok := j.busy[key]; ok && j.err == nil {
		j.err = fmt.Errorf("%s is reconciled by %s and %s at once", key, other, member)
	}
	if before := j.last[key]; before.member != "" && before.member != member && epoch <= before.epoch && j.err == nil {
		j.err = fmt.Errorf("%s: epoch %d of %s after epoch %d of %s", key, epoch, member, before.epoch, before.member)
	}
	if j.kept[key] == nil {
		j.kept[key] = map[string]bool{}
	}
	j.busy[key], j.kept[key][member] = member, true
	j.last[key] = visit{member, epoch, version}
	j.count++
}

func (j *journal) leave(key types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.busy, key)
}

func (j *journal) of(key types.NamespacedName) visit {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last[key]
}

func (j *journal) total() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count
}

func (j *journal) problem() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

func (j *journal) members() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := map[string]int{}
	for _, v := range j.last {
		n[v.member]++
	}
	return n
}

// replica is one member of a test, with a controller of ConfigMaps.
type replica struct {
	*ctrlrt.Manager
	stop context.CancelFunc
	done chan error
}

type replicaOptions struct {
	logger   logr.Logger
	setup    func(*ctrlrt.Manager)
	delivery sharding.Mode
	// selector is a user's own, for ConfigMaps.
	selector labels.Selector
	// busy is how long a reconcile takes.
	busy time.Duration
}

// leaseDuration is that of members: short for those who wait for its end, and long enough for an API server that has to
// share two cores with others.
const leaseDuration = 5 * time.Second

// adminClient returns a client that may do everything.
func adminClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlplane.For(t).Config(), client.Options{})
	require.NoError(t, err)
	return c
}

// newMember returns the manager of a member named pod of the namespace's rota, which sees that namespace alone.
func newMember(t *testing.T, cfg *rest.Config, namespace, pod string, o rota.Options, change ...func(*ctrl.Options),
) *ctrlrt.Manager {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	o.Name, o.Namespace, o.Identity.Pod = "test", namespace, pod
	if o.Logger.GetSink() == nil {
		o.Logger = testLogger(t, pod)
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, leaseDuration)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, o.LeaseDuration/10)
	r, err := rota.New(cfg, o)
	require.NoError(t, err)
	options := managerOptions()
	options.Logger, options.Controller.MaxConcurrentReconciles = o.Logger, 4
	options.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	for _, f := range change {
		f(&options)
	}
	mgr, err := ctrlrt.NewManager(cfg, r, options)
	require.NoError(t, err)
	return mgr
}

// begin starts a manager, which ends with the test.
func begin(t *testing.T, mgr *ctrlrt.Manager) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &replica{Manager: mgr, stop: cancel, done: make(chan error, 1)}
	go func() { out.done <- mgr.Start(ctx) }()
	t.Cleanup(func() { out.leave(t) })
	return out
}

// startReplica starts a member named pod of the namespace's rota.
func startReplica(t *testing.T, namespace, pod string, j *journal, o replicaOptions) *replica {
	t.Helper()
	mgr := newMember(t, controlplane.For(t).Config(), namespace, pod, rota.Options{Logger: o.logger,
		Delivery: o.delivery, LabelNamespaces: []string{namespace}}, func(c *ctrl.Options) {
		c.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: o.selector}}
	})
	if o.setup != nil {
		o.setup(mgr)
	}
	c := mgr.GetClient()
	lost := func(_ context.Context, r reconcile.Request) { j.lose(pod, r.NamespacedName) }
	err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).OnLost(lost).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			epoch, ok := gate.EpochFrom(ctx)
			if !ok {
				t.Errorf("%s: no epoch in the context", pod)
			}
			var cm corev1.ConfigMap
			err := client.IgnoreNotFound(c.Get(ctx, req.NamespacedName, &cm))
			j.enter(pod, req.NamespacedName, epoch, cm.ResourceVersion)
			defer j.leave(req.NamespacedName)
			select {
			case <-time.After(o.busy):
			case <-ctx.Done():
			}
			return reconcile.Result{}, err
		}))
	require.NoError(t, err)
	return begin(t, mgr)
}

// startMember starts a member named pod of the namespace's rota, with the controllers that build makes. It sees that
// namespace alone, or those of LabelNamespaces.
func startMember(t *testing.T, namespace, pod string, o rota.Options, build func(*ctrlrt.Manager) error) *replica {
	t.Helper()
	return startMemberVia(t, controlplane.For(t).Config(), namespace, pod, o, build)
}

// startMemberVia is startMember with a configuration of its own.
func startMemberVia(t *testing.T, cfg *rest.Config, namespace, pod string, o rota.Options,
	build func(*ctrlrt.Manager) error,
) *replica {
	t.Helper()
	if o.LabelNamespaces == nil {
		o.LabelNamespaces = []string{namespace}
	}
	mgr := newMember(t, cfg, namespace, pod, o, func(c *ctrl.Options) {
		c.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, ns := range o.LabelNamespaces {
			c.Cache.DefaultNamespaces[ns] = cache.Config{}
		}
		if slices.Contains(o.LabelNamespaces, metav1.NamespaceAll) {
			c.Cache.DefaultNamespaces = nil
		}
	})
	require.NoError(t, build(mgr))
	return begin(t, mgr)
}

// testLogger returns a logger of the test's. A manager that stops leaves a goroutine behind that may log when the test
// has ended.
func testLogger(t *testing.T, name string) logr.Logger {
	t.Helper()
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Log(prefix, args)
		}
	}, funcr.Options{LogTimestamp: true}).WithName(name)
}

// leave ends the replica gracefully and waits for it.
func (r *replica) leave(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("replica: %v\n%+v", err, r.Rota().Status())
		}
		r.done <- nil
	case <-time.After(hang):
		t.Error("replica does not end")
	}
}

// churn changes ConfigMaps one after another, a hundred in a second, until it is stopped; then it returns how often.
func churn(t *testing.T, c client.Client, keys []types.NamespacedName) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan int, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		n := 0
		defer func() { changed <- n }()
		for ; ctx.Err() == nil; n++ {
			key := keys[n%len(keys)]
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":"churn-%d"}}`, n))
			if err := c.Patch(ctx, configMap(key.Namespace, key.Name, ""), patch); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(cancel)
	return func() int {
		cancel()
		n := <-changed
		changed <- n
		return n
	}
}

// hang is the least time that a test waits for something that does not come: a slow machine is no fault.
const hang = 2 * time.Minute

// eventually waits until check returns "", for limit or hang, whatever is more. Checks take at most a fifth of the
// time: those that ask the API server for much keep others from their work.
func eventually(t *testing.T, limit time.Duration, check func() string) {
	t.Helper()
	limit = max(limit, hang)
	for deadline := time.Now().Add(limit); ; {
		begun := time.Now()
		problem := check()
		if problem == "" {
			return
		}
		if !begun.Before(deadline) {
			t.Fatalf("after %v: %s", limit, problem)
		}
		pause := max(20*time.Millisecond, 4*time.Since(begun))
		<-time.After(min(pause, time.Until(deadline)))
	}
}

// settled says what is missing until n members own everything, evenly, and nothing moves.
func settled(replicas ...*replica) func() string {
	return func() string {
		for _, r := range replicas {
			s := r.Rota().Status()
			fair := 256 / len(replicas)
			switch {
			case s.Members != len(replicas):
				return fmt.Sprintf("%s sees %d members, want %d", s.ID, s.Members, len(replicas))
			case s.Owned.Len() < fair || s.Owned.Len() > fair+1:
				return fmt.Sprintf("%s owns %d slots, want about %d", s.ID, s.Owned.Len(), fair)
			case s.Open != s.Owned:
				return fmt.Sprintf("%s owns %v, but %v is open", s.ID, s.Owned, s.Open)
			case !s.Unowned.Empty() || !s.Coming.Empty() || !s.Going.Empty():
				return fmt.Sprintf("%s: unowned %v, coming %v, going %v", s.ID, s.Unowned, s.Coming, s.Going)
			}
		}
		return ""
	}
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{"value": value}}
}

// inShare says whether an object of a sharded kind, by its own key or by its owner's, is a member's.
func inShare(r *rota.Rota, kind schema.GroupKind, obj metav1.Object) bool {
	parts := r.Adapt(adapter.Grant())
	return slices.ContainsFunc(parts.Share.Slots(kind, obj), parts.Gate.Owns)
}
