package store

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
)

// Elections reads and writes the Lease of a leader election, as opposed to the rota's Leases. Its methods may be called
// concurrently.
type Elections interface {
	// ReadElection gets the Lease without resourceVersion. If it is missing, the result is an empty Record and no error.
	ReadElection(ctx context.Context, lease types.NamespacedName) (election.Record, error)
	// WriteElection creates the Lease, or replaces it if it still has the record's version. It keeps the Lease's other
	// fields. The outcome is OutcomeConflict if the Lease has another version, or exists when it should be created.
	WriteElection(ctx context.Context, lease types.NamespacedName, r election.Record, timeout time.Duration,
	) (election.Record, member.Outcome, error)
	// WatchElection calls emit with the current Lease and then with its changes, in order. It may skip a state that was
	// followed by another. A missing Lease is an empty Record. Its version is then the version of the deletion, or of a
	// list without it. WatchElection reconnects when the stream breaks, and retries now and then if the API server forbids
	// it. It blocks until ctx ends, and returns ctx.Err(). It calls emit from its own goroutine.
	WatchElection(ctx context.Context, lease types.NamespacedName, emit func(version string, r election.Record)) error
}

var _ Elections = (*Kubernetes)(nil)

func electionKey(lease types.NamespacedName) string { return "election/" + lease.String() }

func electionError(lease types.NamespacedName, verb string) permission.Error {
	want := permission.Error{Namespace: lease.Namespace, Group: coordinationv1.GroupName, Resource: leases, Verb: verb}
	if verb != "create" {
		want.Name = lease.Name
	}
	return want
}

// ReadElection implements Elections.
func (k *Kubernetes) ReadElection(ctx context.Context, lease types.NamespacedName) (election.Record, error) {
	var obj coordinationv1.Lease
	req := k.calls.leases.Get().Namespace(lease.Namespace).Resource(leases).Name(lease.Name)
	switch err := k.get(ctx, req, &obj, electionError(lease, "get")); {
	case notFound(err):
		k.forget(electionKey(lease))
		return election.Record{}, nil
	case err != nil:
		return election.Record{}, err
	}
	k.remember(electionKey(lease), &obj)
	return readElection(&obj), nil
}

// WriteElection implements Elections.
func (k *Kubernetes) WriteElection(ctx context.Context, lease types.NamespacedName, r election.Record,
	timeout time.Duration,
) (election.Record, member.Outcome, error) {
	if r.Version == "" {
		obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
		putElection(obj, r)
		return k.sendElection(ctx, lease, "create", obj, timeout)
	}
	base, ok := k.recall(electionKey(lease)).(*coordinationv1.Lease)
	if !ok || base.ResourceVersion != r.Version {
		return election.Record{}, member.OutcomeConflict,
			fmt.Errorf("lease %s: it is not known at version %s", lease, r.Version)
	}
	obj := base.DeepCopy() // with its UID: without one, PUT creates a missing Lease
	putElection(obj, r)
	return k.sendElection(ctx, lease, "update", obj, timeout)
}

func (k *Kubernetes) sendElection(ctx context.Context, lease types.NamespacedName, verb string,
	obj *coordinationv1.Lease, timeout time.Duration,
) (election.Record, member.Outcome, error) {
	req := k.calls.leases.Post()
	if verb == "update" {
		req = k.calls.leases.Put().Name(lease.Name)
	}
	var out coordinationv1.Lease
	o, err := k.write(ctx, timeout, req.Namespace(lease.Namespace).Resource(leases).Body(obj), &out,
		electionError(lease, verb))
	if o != member.OutcomeDone {
		return election.Record{}, o, err
	}
	k.remember(electionKey(lease), &out)
	return readElection(&out), o, nil
}

// WatchElection implements Elections.
func (k *Kubernetes) WatchElection(ctx context.Context, lease types.NamespacedName,
	emit func(version string, r election.Record),
) error {
	list := &coordinationv1.LeaseList{}
	see := func(obj *coordinationv1.Lease) { emit(obj.ResourceVersion, readElection(obj)) }
	return k.follow(ctx, feed{
		client: k.watches.leases, resource: leases, namespace: lease.Namespace, options: named(lease.Name), list: list,
		want: electionError(lease, ""), optional: true,
		reset: func(version string) {
			items := list.Items
			*list = coordinationv1.LeaseList{}
			if len(items) == 0 {
				emit(version, election.Record{})
				return
			}
			see(&items[0])
		},
		change: func(kind watch.EventType, obj runtime.Object) {
			switch lease, ok := obj.(*coordinationv1.Lease); {
			case !ok:
			case kind == watch.Deleted:
				emit(lease.ResourceVersion, election.Record{})
			default:
				see(lease)
			}
		},
	})
}

// putElection writes the record into a Lease, as k8s.io/client-go/tools/leaderelection does.
func putElection(obj *coordinationv1.Lease, r election.Record) {
	obj.Spec.HolderIdentity = ptr.To(r.Holder)
	obj.Spec.LeaseDurationSeconds = ptr.To(int32(r.Duration / time.Second))
	obj.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(time.Unix(r.Acquired, 0)))
	obj.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(r.Renewed, 0)))
	obj.Spec.LeaseTransitions = ptr.To(r.Transitions)
}

func readElection(obj *coordinationv1.Lease) election.Record {
	r := election.Record{
		Version: obj.ResourceVersion, Holder: holder(obj),
		Duration:    time.Duration(ptr.Deref(obj.Spec.LeaseDurationSeconds, 0)) * time.Second,
		Transitions: ptr.Deref(obj.Spec.LeaseTransitions, 0),
	}
	if t := obj.Spec.AcquireTime; t != nil {
		r.Acquired = t.Unix()
	}
	if t := obj.Spec.RenewTime; t != nil {
		r.Renewed = t.Unix()
	}
	return r
}
