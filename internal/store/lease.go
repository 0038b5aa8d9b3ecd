package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
)

const leases = "leases"

// lease describes a request for a Lease. RBAC rules cannot list the names of Leases, so the missing rule has no name.
func (k *Kubernetes) lease(verb string) permission.Error {
	return permission.Error{Namespace: k.opts.Namespace, Group: coordinationv1.GroupName, Resource: leases, Verb: verb}
}

func leaseKey(id string) string { return leases + "/" + id }

// CreateLease implements Store.
//
// Every attempt writes the same time of acquisition. So a Lease of an earlier attempt, whose answer was lost, is
// recognized as this member's, and is renewed.
func (k *Kubernetes) CreateLease(ctx context.Context, lease member.Lease, timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	name := names.Lease(k.opts.Name, lease.ID)
	if reasons := validation.IsDNS1123Subdomain(name); len(reasons) > 0 {
		return member.Lease{}, member.OutcomeFailed, fmt.Errorf("lease %q: %s", name, strings.Join(reasons, "; "))
	}
	deadline := time.Now().Add(timeout)
	obj := k.newLease(lease.ID)
	obj.Spec.AcquireTime = k.firstTry(lease.ID)
	if there, ok := k.recall(leaseKey(lease.ID)).(*coordinationv1.Lease); ok && isFrom(obj, there) {
		return k.renewFirst(ctx, lease, there, timeout)
	}
	putLease(obj, lease, k.opts.LeaseDuration, time.Now())
	k.setPeer(obj)
	var out coordinationv1.Lease
	req := k.calls.leases.Post().Namespace(k.opts.Namespace).Resource(leases).Body(obj)
	o, err := k.write(ctx, timeout, req, &out, k.lease("create"))
	switch o { //nolint:exhaustive // the other outcomes stay as they are
	case member.OutcomeDone:
		k.remember(leaseKey(lease.ID), &out)
		k.created(lease.ID)
		return readLease(lease.ID, &out), o, nil
	case member.OutcomeMissing: // the namespace is missing
		o = member.OutcomeFailed
	case member.OutcomeConflict:
		there, getErr := k.getLease(ctx, lease.ID)
		if getErr != nil {
			return member.Lease{}, member.OutcomeFailed, getErr
		}
		if isFrom(obj, there) {
			k.remember(leaseKey(lease.ID), there)
			return k.renewFirst(ctx, lease, there, time.Until(deadline))
		}
	}
	return member.Lease{}, o, err
}

// isFrom reports whether a Lease was made by an earlier attempt to create obj.
func isFrom(obj, there *coordinationv1.Lease) bool {
	return there.Name == obj.Name && there.Spec.AcquireTime.Equal(obj.Spec.AcquireTime)
}

// renewFirst renews a Lease that an earlier attempt has created.
func (k *Kubernetes) renewFirst(ctx context.Context, lease member.Lease, there *coordinationv1.Lease,
	timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	lease.UID, lease.Version = string(there.UID), there.ResourceVersion
	out, o, err := k.RenewLease(ctx, lease, timeout)
	switch o { //nolint:exhaustive // the other outcomes stay as they are
	case member.OutcomeDone:
		k.created(lease.ID)
	case member.OutcomeMissing, member.OutcomeConflict: // it was deleted
		k.forget(leaseKey(lease.ID))
		o = member.OutcomeFailed
	}
	return out, o, err
}

// firstTry returns when the creation of a Lease was first tried.
func (k *Kubernetes) firstTry(id string) *metav1.MicroTime {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.creating[id]
	if !ok {
		at = metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)) // the precision of JSON
		k.creating[id] = at
	}
	return &at
}

func (k *Kubernetes) created(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.creating, id)
}

// RenewLease implements Store.
//
// It is a PUT with preconditions on UID and resourceVersion, not a patch. A late patch without resourceVersion would
// overwrite a newer gate or epoch with an older one, and a patch with it has no advantage. The UID matters most: if
// there is no Lease, Kubernetes creates one from a PUT, even from one with a resourceVersion. With a UID it answers
// 409.
//
// On a conflict the Lease is read again. If it was only edited by hand, or renewed by an earlier request whose answer
// was lost, the renewal is sent once more, for the version found.
func (k *Kubernetes) RenewLease(ctx context.Context, lease member.Lease, timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	if err := Conditional(lease.UID, lease.Version); err != nil {
		return member.Lease{}, member.OutcomeFailed, fmt.Errorf("lease of %s: %w", lease.ID, err)
	}
	deadline := time.Now().Add(timeout)
	base, ok := k.recall(leaseKey(lease.ID)).(*coordinationv1.Lease)
	if !ok || string(base.UID) != lease.UID || holder(base) != lease.ID {
		base = k.newLease(lease.ID)
		base.UID, base.ResourceVersion = types.UID(lease.UID), lease.Version
	}
	for attempt := 0; ; attempt++ {
		out, o, err := k.putLease(ctx, base, lease, time.Until(deadline))
		if o != member.OutcomeConflict {
			return out, o, err
		}
		var why member.Outcome
		if base, why, err = k.reread(ctx, lease, timeout); why != member.OutcomeDone {
			return member.Lease{}, why, err
		}
		if attempt == 1 {
			// It still belongs to this member, and is only edited again and again. It is not lost.
			err := fmt.Errorf("lease of %s: changed by others while being renewed", lease.ID)
			return member.Lease{}, member.OutcomeFailed, err
		}
	}
}

func (k *Kubernetes) putLease(ctx context.Context, base *coordinationv1.Lease, lease member.Lease,
	timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	obj := base.DeepCopy()
	setLabel(obj, k.opts.Name)
	putLease(obj, lease, k.opts.LeaseDuration, time.Now())
	k.setPeer(obj)
	var out coordinationv1.Lease
	req := k.calls.leases.Put().Namespace(k.opts.Namespace).Resource(leases).Name(obj.Name).Body(obj)
	o, err := k.write(ctx, timeout, req, &out, k.lease("update"))
	if o != member.OutcomeDone {
		return member.Lease{}, o, err
	}
	k.remember(leaseKey(lease.ID), &out)
	return readLease(lease.ID, &out), o, nil
}

// reread finds out why a renewal met a conflict. The outcome is OutcomeDone if the Lease is still the member's.
func (k *Kubernetes) reread(ctx context.Context, lease member.Lease, timeout time.Duration,
) (*coordinationv1.Lease, member.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	obj, err := k.getLease(ctx, lease.ID)
	switch {
	case notFound(err):
		return nil, member.OutcomeMissing, err
	case err != nil:
		return nil, member.OutcomeFailed, err
	case string(obj.UID) != lease.UID:
		err := fmt.Errorf("lease %s: it was replaced: uid %s, not %s", obj.Name, obj.UID, lease.UID)
		return nil, member.OutcomeConflict, err
	case holder(obj) != lease.ID:
		return nil, member.OutcomeConflict, fmt.Errorf("lease %s: it is held by %q now", obj.Name, holder(obj))
	}
	k.remember(leaseKey(lease.ID), obj)
	return obj, member.OutcomeDone, nil
}

// DeleteLease implements Store.
func (k *Kubernetes) DeleteLease(ctx context.Context, id, uid, version string, timeout time.Duration,
) (member.Outcome, error) {
	if uid == "" {
		return k.unseenLease(ctx, id, timeout)
	}
	if err := Conditional(uid, version); err != nil {
		return member.OutcomeFailed, fmt.Errorf("lease of %s: %w", id, err)
	}
	options := &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To(types.UID(uid)), ResourceVersion: &version},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	}
	o, err := k.write(ctx, timeout,
		k.calls.leases.Delete().Namespace(k.opts.Namespace).Resource(leases).Name(names.Lease(k.opts.Name, id)).Body(options),
		nil, k.lease("delete"))
	if o == member.OutcomeDone {
		k.forget(leaseKey(id))
	}
	return o, err
}

func (k *Kubernetes) unseenLease(ctx context.Context, id string, timeout time.Duration) (member.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch _, err := k.getLease(ctx, id); {
	case notFound(err):
		return member.OutcomeMissing, err
	case err != nil:
		return member.OutcomeFailed, err
	}
	return member.OutcomeConflict, fmt.Errorf("lease %s: it exists", names.Lease(k.opts.Name, id))
}

func (k *Kubernetes) getLease(ctx context.Context, id string) (*coordinationv1.Lease, error) {
	obj := &coordinationv1.Lease{}
	req := k.calls.leases.Get().Namespace(k.opts.Namespace).Resource(leases).Name(names.Lease(k.opts.Name, id))
	err := k.get(ctx, req, obj, k.lease("get"))
	return obj, err
}

func (k *Kubernetes) newLease(id string) *coordinationv1.Lease {
	meta := metav1.ObjectMeta{Name: names.Lease(k.opts.Name, id), Namespace: k.opts.Namespace}
	obj := &coordinationv1.Lease{ObjectMeta: meta}
	setLabel(obj, k.opts.Name)
	return obj
}

// setPeer publishes how other members reach this one.
func (k *Kubernetes) setPeer(obj *coordinationv1.Lease) {
	delete(obj.Annotations, names.AnnotationPeer)
	if entry := k.opts.Peer(); entry != "" {
		obj.Annotations[names.AnnotationPeer] = entry
	}
}

// Peer returns the entry in a member's Lease by which other members reach it, or an empty string.
func (k *Kubernetes) Peer(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	obj, err := k.getLease(ctx, id)
	if err != nil {
		return "", err
	}
	return obj.Annotations[names.AnnotationPeer], nil
}
