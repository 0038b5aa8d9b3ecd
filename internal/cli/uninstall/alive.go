package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Alive lists members that may still work, or may start again.
type Alive struct {
	// Members are the IDs of members and processes that renew their Leases.
	Members []string
	// Pods are the names of the members' Pods, which also exist while a container waits to be restarted.
	Pods []string
	// Unread is why the Pods are unknown: a permission is missing.
	Unread error
}

// Err returns an error that lists what is alive, or nil.
func (a *Alive) Err() error {
	var who []string
	if len(a.Members) > 0 {
		who = append(who, "these members are alive: "+strings.Join(a.Members, ", "))
	}
	if len(a.Pods) > 0 {
		who = append(who, "these Pods of members exist: "+strings.Join(a.Pods, ", "))
	}
	if len(who) == 0 {
		return nil
	}
	return fmt.Errorf("%s; scale their Deployment to 0, wait until their Pods are gone, and try again",
		strings.Join(who, "; "))
}

// Alive finds live members. Clocks may differ, so a Lease that looks expired is watched for longer than a renewal
// takes.
func (f *Finder) Alive(ctx context.Context) (*Alive, error) {
	out := &Alive{}
	before, err := f.leases(ctx, names.LabelRota)
	if err != nil {
		return nil, err
	}
	if err := f.pods(ctx, before, out); err != nil {
		return nil, err
	}
	wait := time.Duration(0)
	versions := map[string]string{}
	for _, l := range before {
		duration := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		wait = max(wait, duration/3+time.Second) // members renew at least every quarter
		versions[l.Name] = l.ResourceVersion
		if l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < duration {
			out.Members = append(out.Members, holder(l))
		}
	}
	if len(out.Members)+len(out.Pods) > 0 || len(before) == 0 {
		return out, nil
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := f.leases(ctx, names.LabelRota)
	for _, l := range after {
		if versions[l.Name] != l.ResourceVersion {
			out.Members = append(out.Members, holder(l))
		}
	}
	slices.Sort(out.Members)
	return out, err
}

func holder(l coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, l.Name) }

// pods finds the Pods of the table's members, of recently expelled members, and of the Leases' holders.
func (f *Finder) pods(ctx context.Context, leases []coordinationv1.Lease, out *Alive) error {
	cm, err := f.client.CoreV1().ConfigMaps(f.o.Rota.Namespace).Get(ctx, f.o.Rota.Name, metav1.GetOptions{})
	t := &table.Table{} // without one, the Leases list the members
	switch {
	case err == nil:
		read, err := table.Decode(cm.Data)
		if errors.Is(err, table.ErrFormat) { // it may contain Pods without Leases
			return fmt.Errorf("rota %s: %w: %w", f.o.Rota, view.ErrNewer, err)
		}
		if err == nil {
			t = read
		}
	case !apierrors.IsNotFound(err):
		return refused(err, configMaps, f.o.Rota.Namespace, "get")
	}
	list, err := f.client.CoreV1().Pods(f.o.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		err = refused(err, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, f.o.Rota.Namespace, "list")
		if apierrors.IsForbidden(err) {
			out.Unread, err = err, nil
		}
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && runs(p, t, leases) {
			out.Pods = append(out.Pods, p.Name)
		}
	}
	return nil
}

// runs reports whether a Pod is a member's. A new Pod may have the same name as a deleted one.
func runs(p *corev1.Pod, t *table.Table, leases []coordinationv1.Lease) bool {
	for _, m := range t.Members {
		if m.Pod == p.Name && (m.PodUID == "" || m.PodUID == string(p.UID)) {
			return true
		}
	}
	for _, e := range t.Expels {
		if e.Pod == p.Name && p.CreationTimestamp.Unix() <= e.At {
			return true
		}
	}
	return slices.ContainsFunc(leases, func(l coordinationv1.Lease) bool {
		id := holder(l)
		end := strings.LastIndex(id, "-") // a member's ID is its Pod's name and a suffix
		renewed := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{})
		return end > 0 && id[:end] == p.Name && p.CreationTimestamp.Time.Before(renewed.Time)
	})
}

// unchanged returns an error if the table or the members' Leases have changed since they were found.
func (f *Finder) unchanged(ctx context.Context, r *Remains) error {
	members, err := f.leases(ctx, names.LabelRota)
	if err != nil {
		return err
	}
	now, err := f.table(ctx)
	if err != nil {
		return err
	}
	for _, l := range members {
		now = append(now, object(leases, &l))
	}
	for _, o := range now {
		if !slices.Contains(r.Objects, o) {
			return fmt.Errorf("%s is new or has changed meanwhile: a member may have started", o)
		}
	}
	return nil
}

// quiet returns an error if any member may work.
func (f *Finder) quiet(ctx context.Context, r *Remains) error {
	alive, err := f.Alive(ctx)
	if err != nil {
		return err
	}
	return errors.Join(alive.Err(), f.unchanged(ctx, r))
}
