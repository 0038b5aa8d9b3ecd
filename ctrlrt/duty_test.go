package ctrlrt_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// secret returns a Secret of the tests.
func secret(namespace, name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{"value": value}}
}

// ownerOf returns which of the replicas has a duty; nil: none says that it has.
func ownerOf(duty string, replicas ...*replica) *replica {
	for _, r := range replicas {
		s := r.Rota().Status()
		for _, d := range s.Duties {
			if d.Name == duty && d.Owner != "" && d.Owner == s.ID && d.Running {
				return r
			}
		}
	}
	return nil
}

// operator has a sharded controller of ConfigMaps, one of Secrets that is a duty, and a runnable that is a duty.
type operator struct {
	t         *testing.T
	namespace string
	shards    *journal // of the sharded controller
	secrets   *journal
	beats     *journal // of the runnable
	events    map[string]chan event.GenericEvent
	busy      time.Duration
}

func (o *operator) start(pod string) *replica {
	o.t.Helper()
	if o.events == nil {
		o.events = map[string]chan event.GenericEvent{}
	}
	events := make(chan event.GenericEvent)
	o.events[pod] = events
	return startReplica(o.t, o.namespace, pod, o.shards, replicaOptions{setup: func(mgr *ctrlrt.Manager) {
		c := mgr.GetClient()
		err := ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.Secret{}).
			Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc( // another controller shards it
				func(_ context.Context, obj client.Object) []reconcile.Request {
					return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(),
						Name: "for-" + obj.GetName()}}}
				})).
			WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				epoch, ok := gate.EpochFrom(ctx)
				if !ok {
					o.t.Errorf("%s: no epoch in the context", pod)
				}
				var s corev1.Secret
				err := client.IgnoreNotFound(c.Get(ctx, req.NamespacedName, &s))
				o.secrets.enter(pod, req.NamespacedName, epoch, s.ResourceVersion)
				defer o.secrets.leave(req.NamespacedName)
				select {
				case <-time.After(o.busy):
				case <-ctx.Done():
				}
				return reconcile.Result{}, err
			}))
		require.NoError(o.t, err)
		err = mgr.AddDuty("beat", manager.RunnableFunc(func(ctx context.Context) error {
			epoch, _ := gate.EpochFrom(ctx)
			key := types.NamespacedName{Name: "beat"}
			o.beats.enter(pod, key, epoch, "")
			defer o.beats.leave(key)
			<-ctx.Done()
			return nil
		}))
		require.NoError(o.t, err)
	}})
}

// reconciled says what is missing until the pod has reconciled all of the keys last, at their present versions.
func (o *operator) reconciled(c client.Client, pod string, keys []types.NamespacedName) func() string {
	return func() string {
		for _, key := range keys {
			var s corev1.Secret
			if err := client.IgnoreNotFound(c.Get(o.t.Context(), key, &s)); err != nil {
				return err.Error()
			}
			if v := o.secrets.of(key); v.member != pod || v.version != s.ResourceVersion {
				return fmt.Sprintf("%s was last reconciled by %q at %q, want %q at %q", key, v.member, v.version, pod,
					s.ResourceVersion)
			}
		}
		return ""
	}
}

// R18: in one manager a sharded controller works on all members, and a controller and a runnable that are duties work on
// one each. Whoever gets the controller reconciles every object; no object is reconciled twice at once.
func TestR18DutiesOfAManager(t *testing.T) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var keys []types.NamespacedName
	for i := range 20 {
		s := secret(namespace, fmt.Sprintf("secret-%d", i), "1")
		require.NoError(t, c.Create(t.Context(), s))
		keys = append(keys, client.ObjectKeyFromObject(s))
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
		require.NoError(t, c.Create(t.Context(), cm))
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: "for-" + cm.Name})
	}
	o := &operator{t: t, namespace: namespace, shards: newJournal(), secrets: newJournal(), beats: newJournal(),
		busy: 20 * time.Millisecond}
	a, b := o.start("a"), o.start("b")
	members := map[*replica]string{a: "a", b: "b"}
	eventually(t, 60*time.Second, settled(a, b))
	await := func(when string, among ...*replica) (owner *replica) {
		t.Helper()
		eventually(t, 60*time.Second, func() string {
			if owner = ownerOf("secret", among...); owner == nil || ownerOf("beat", among...) == nil {
				return when + ": a duty is nobody's"
			}
			return ""
		})
		eventually(t, 60*time.Second, o.reconciled(c, members[owner], keys))
		return owner
	}
	owner := await("at first", a, b)
	if ownerOf("beat", a, b) == owner {
		t.Error("one of two members has both duties")
	}

	// Events of the one that has the duty are heard, and those of the other wait.
	other := a
	if owner == a {
		other = b
	}
	generic := func(pod, name string) {
		events := o.events[pod]
		go func() {
			select {
			case events <- event.GenericEvent{Object: secret(namespace, name, "")}:
			case <-t.Context().Done():
			}
		}()
	}
	heard, waits := types.NamespacedName{Namespace: namespace, Name: "heard"},
		types.NamespacedName{Namespace: namespace, Name: "waits"}
	generic(members[owner], heard.Name)
	generic(members[other], waits.Name)
	eventually(t, 10*time.Second, func() string {
		if o.secrets.of(heard).member != members[owner] {
			return "an event of a channel was not heard"
		}
		return ""
	})
	if o.secrets.of(waits).member != "" {
		t.Error("an event of a member without the duty was heard")
	}

	// Expelled: its Lease is deleted.
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, names.Lease("test", owner.Rota().ID())
	require.NoError(t, c.Delete(t.Context(), lease))
	eventually(t, 60*time.Second, settled(a, b))
	owner = await("after one was expelled", a, b)

	// A leaver hands its duties over while it works.
	d := o.start("d")
	members[d] = "d"
	eventually(t, 60*time.Second, settled(a, b, d))
	owner = await("with three", a, b, d)
	owner.leave(t)
	var left []*replica
	for r := range members {
		if r != owner {
			left = append(left, r)
		}
	}
	owner = await("after one left", left...)
	// Back and forth: sources that can be started once only go on.
	again := types.NamespacedName{Namespace: namespace, Name: "again"}
	generic(members[owner], again.Name)
	eventually(t, 10*time.Second, func() string {
		if o.secrets.of(again).member != members[owner] {
			return "an event of a channel was not heard"
		}
		return ""
	})
	for _, j := range []*journal{o.shards, o.secrets, o.beats} {
		if err := j.problem(); err != nil {
			t.Error(err)
		}
	}
}

// A reconcile of a duty's controller goes on when its member leaves; the duty moves when it has ended.
func TestDutyWaitsForReconciles(t *testing.T) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	require.NoError(t, c.Create(t.Context(), secret(namespace, "slow", "1")))
	begun, release := make(chan string, 10), make(chan struct{})
	var mu sync.Mutex
	var got []error
	build := func(pod string) func(*ctrlrt.Manager) error {
		return func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewDutyControllerManagedBy(mgr).Named("secrets").For(&corev1.Secret{}).
				Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					if req.Name != "slow" {
						return reconcile.Result{}, nil
					}
					begun <- pod
					select {
					case <-release:
					case <-ctx.Done():
					}
					mu.Lock()
					defer mu.Unlock()
					s := secret(namespace, "slow", "by-"+pod)
					got = append(got, ctx.Err(), mgr.GetClient().Patch(ctx, s, client.Merge))
					return reconcile.Result{}, nil
				}))
		}
	}
	a := startMember(t, namespace, "a", rota.Options{}, build("a"))
	if pod := <-begun; pod != "a" {
		t.Fatal(pod)
	}
	b := startMember(t, namespace, "b", rota.Options{}, build("b"))
	eventually(t, 60*time.Second, settled(a, b))
	left := make(chan struct{})
	go func() {
		a.leave(t)
		close(left)
	}()
	eventually(t, 30*time.Second, func() string {
		if s := b.Rota().Status(); s.Owned.Len() != 256 {
			return fmt.Sprintf("b has %d slots", s.Owned.Len())
		}
		return ""
	})
	select {
	case pod := <-begun:
		t.Errorf("%s began while a was reconciling", pod)
	case <-left:
		t.Error("a has left while it was reconciling")
	default:
	}
	close(release)
	<-left
	if pod := <-begun; pod != "b" {
		t.Errorf("%s began", pod)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, err := range got[:2] {
		if err != nil {
			t.Errorf("in the reconcile that went on: %v", err)
		}
	}
}

// What cannot be a duty is refused, and what needs a leader is told how to become one.
func TestDutiesThatAreRefused(t *testing.T) {
	mgr, _ := offline(t, "duties-refused", ctrl.Options{})
	ok := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	duty := func() *ctrlrt.DutyBuilder { return ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.Secret{}) }
	c, err := controller.NewUnmanaged("plain", controller.Options{Reconciler: ok})
	require.NoError(t, err)
	require.NoError(t, duty().Named("twice").Complete(ok))
	for _, test := range []struct {
		err  error
		want string
	}{
		{duty().Named("twice").Complete(ok), "twice"},
		{duty().Named("a,b").Complete(ok), "without a comma"},
		{duty().Named("x").Complete(nil), "non-nil Reconciler"},
		{duty().Named("y").WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).Complete(ok), "NeedLeaderElection is false"},
		{ctrlrt.NewDutyControllerManagedBy(mgr).Complete(ok), "Named()"},
		{ctrlrt.NewDutyControllerManagedBy(mgr.Manager).For(&corev1.Secret{}).Complete(ok), "ctrlrt.NewManager"},
		{mgr.AddDuty("c", c), "ctrlrt.NewDutyControllerManagedBy"},
		{mgr.AddDuty("d", mgr.GetCache()), "use Add"},
		{mgr.AddDuty("twice", manager.RunnableFunc(fillTokens)), "already"},
	} {
		require.ErrorSays(t, test.err, test.want)
	}
	require.NoError(t, mgr.Add(manager.RunnableFunc(fillTokens)))
	err = startOnce(t, mgr)
	require.ErrorSays(t, err, "AddDuty", "NewDutyControllerManagedBy", "LeaderElection: true")
}
