package coverage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/store"
)

// Reports are the reports of a rota in a Kubernetes API server: each in a ConfigMap that is named as its member's Lease, and owned by
// it. Methods may be called concurrently.
type Reports struct {
	client corev1client.ConfigMapInterface
	rota   string
	ns     string
}

// NewReports returns the reports of the rota of that namespace and name.
func NewReports(cfg *rest.Config, namespace, name string) (*Reports, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reports of rota %s/%s: %w", namespace, name, err)
	}
	return &Reports{client.ConfigMaps(namespace), name, namespace}, nil
}

// Publish writes a member's report in place of its last one. lease is the UID of its Lease. A missing permission is a
// store.PermissionError.
func (r *Reports) Publish(ctx context.Context, report *Report, lease types.UID) error {
	name := store.LeaseName(r.rota, report.Member)
	data, err := report.Encode()
	if err != nil {
		return err
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{store.LabelCoverage: r.rota},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: name, UID: lease}},
		},
		Data: data,
	}
	verb := "update"
	_, err = r.client.Update(ctx, cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		verb = "create"
		_, err = r.client.Create(ctx, cm, metav1.CreateOptions{})
	}
	return r.wrap("publish", verb, name, err)
}

// Withdraw deletes a member's report, if there is one.
func (r *Reports) Withdraw(ctx context.Context, member string) error {
	name := store.LeaseName(r.rota, member)
	err := r.client.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return r.wrap("withdraw", "delete", name, err)
}

// Read returns all reports. Those that cannot be read are left out, and are in the error.
func (r *Reports) Read(ctx context.Context) ([]*Report, error) {
	list, err := r.client.List(ctx, metav1.ListOptions{LabelSelector: store.LabelCoverage + "=" + r.rota})
	if err != nil {
		return nil, r.wrap("read", "list", "", err)
	}
	var out []*Report
	var errs []error
	for i := range list.Items {
		report, err := Decode(list.Items[i].Data)
		if err != nil {
			errs = append(errs, fmt.Errorf("configmap %s/%s: %w", r.ns, list.Items[i].Name, err))
			continue
		}
		out = append(out, report)
	}
	return out, errors.Join(errs...)
}

func (r *Reports) wrap(what, verb, name string, err error) error {
	if err == nil {
		return nil
	}
	err = store.Refused(err, store.PermissionError{Namespace: r.ns, Resource: "configmaps", Verb: verb})
	return fmt.Errorf("%s the report %s of rota %s/%s: %w", what, name, r.ns, r.rota, err)
}
