package rotatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/names"
)

// ownLeases returns the Leases of this rota: its members' Leases, and the Leases of their reports.
func ownLeases(ctx context.Context, c client.Client) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.InNamespace(rotaName)); err != nil {
		return nil, fmt.Errorf("list Leases of namespace %s: %w", rotaName, err)
	}
	return slices.DeleteFunc(list.Items, func(l coordinationv1.Lease) bool {
		return l.Labels[names.LabelRota] != rotaName && l.Labels[names.LabelCoverage] != rotaName
	}), nil
}

// deleteLeases deletes the Leases of this rota. Its members have ended.
func deleteLeases(ctx context.Context, c client.Client) error {
	all, err := ownLeases(ctx, c)
	errs := []error{err}
	for i := range all {
		if err := c.Delete(ctx, &all[i]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete Lease %s/%s of an earlier run: %w", rotaName, all[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// refuseOthers returns an error if another process runs members of this rota. It watches Leases that an earlier process
// has left behind until they have expired, or for longer than their next renewal takes.
func refuseOthers(ctx context.Context, c client.Client) error {
	versions := map[string]string{}
	for begun := time.Now(); ; {
		all, err := ownLeases(ctx, c)
		if err != nil {
			return err
		}
		fresh := false
		for _, l := range all {
			duration := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
			expired := time.Since(ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time) >= duration
			if l.Labels[names.LabelRota] != rotaName || expired {
				continue
			}
			if before, ok := versions[l.Name]; ok && before != l.ResourceVersion || !ok && len(versions) > 0 {
				return fmt.Errorf("another rotatest runs on this API server: Lease %s/%s was renewed while it was watched. Give "+
					"each a separate API server, or run the tests of one package at a time (go test -p 1)", rotaName, l.Name)
			}
			versions[l.Name] = l.ResourceVersion
			fresh = fresh || time.Since(begun) < duration/3+time.Second // members renew at least every quarter
		}
		if !fresh {
			return nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}
