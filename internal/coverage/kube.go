package coverage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
)

// Reports are the reports of a rota in a Kubernetes API server. Each is stored in the annotations of a Lease that holds
// nothing else and is owned by the member's Lease. Methods may be called concurrently.
//
// They are not ConfigMaps: their names are not known beforehand, so RBAC could not limit a member to them. A member
// would need permission to read and change every ConfigMap of the namespace. It needs to change Leases anyway.
type Reports struct {
	client coordinationclient.LeaseInterface
	rota   string
	ns     string

	mu       sync.Mutex
	versions map[string]string // last written versions by name; the API server does not update Leases without one
}

// NewReports returns the reports of the rota with that namespace and name.
func NewReports(cfg *rest.Config, namespace, name string) (*Reports, error) {
	client, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reports of rota %s/%s: %w", namespace, name, err)
	}
	return &Reports{client: client.Leases(namespace), rota: name, ns: namespace, versions: map[string]string{}}, nil
}

// attempts is how often Publish writes a report if its last version is not the expected one.
const attempts = 3

// Publish writes a member's report in place of its last one. lease is the UID of the member's Lease. A missing
// permission is returned as a permission.Error.
func (r *Reports) Publish(ctx context.Context, report *Report, lease types.UID) error {
	data, err := report.Encode()
	if err != nil {
		return err
	}
	name, owner := reportName(r.rota, report.Member), names.Lease(r.rota, report.Member)
	obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{names.LabelCoverage: r.rota}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: owner,
			UID: lease}},
	}}
	if len(report.Unlabelled) > 0 {
		obj.Labels[names.LabelUnlabelled] = "true"
	}
	for field, text := range data {
		obj.Annotations[names.AnnotationReport+field] = text
	}
	r.mu.Lock()
	obj.ResourceVersion = r.versions[name]
	r.mu.Unlock()
	for range attempts {
		var out *coordinationv1.Lease
		verb := "update"
		if obj.ResourceVersion == "" {
			verb = "create"
			out, err = r.client.Create(ctx, obj, metav1.CreateOptions{})
		} else {
			out, err = r.client.Update(ctx, obj, metav1.UpdateOptions{})
		}
		if err == nil {
			r.mu.Lock()
			r.versions[name] = out.ResourceVersion
			r.mu.Unlock()
			return nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return r.wrap("publish", verb, name, err)
		}
		there, getErr := r.client.Get(ctx, name, metav1.GetOptions{})
		if getErr != nil && !apierrors.IsNotFound(getErr) {
			return r.wrap("publish", "get", name, getErr)
		}
		if obj.ResourceVersion = ""; getErr == nil {
			obj.ResourceVersion = there.ResourceVersion
		}
	}
	return r.wrap("publish", "update", name, err)
}

// reportName returns the name of the Lease with a member's report.
func reportName(rota, member string) string {
	name := names.Lease(rota, member) + ".report"
	if len(name) > validation.DNS1123SubdomainMaxLength {
		name = fmt.Sprintf("%s.%016x.report", rota, slot.HashName("", member))
	}
	return name
}

// Withdraw deletes a member's report, if there is one.
func (r *Reports) Withdraw(ctx context.Context, member string) error {
	name := reportName(r.rota, member)
	err := r.client.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return r.wrap("withdraw", "delete", name, err)
}

// Read returns all reports that can be read. The error describes the others.
func (r *Reports) Read(ctx context.Context) ([]*Report, error) {
	all, err := r.read(ctx, names.LabelCoverage+"="+r.rota)
	return all[r.rota], err
}

// ReadUnlabelled returns the reports that list Report.Unlabelled. Usually there are none. Errors are as for Read.
func (r *Reports) ReadUnlabelled(ctx context.Context) ([]*Report, error) {
	all, err := r.read(ctx, names.LabelCoverage+"="+r.rota+","+names.LabelUnlabelled)
	return all[r.rota], err
}

// ReadAll returns the reports of all rotas in the namespace, by rota name. Errors are as for Read.
func (r *Reports) ReadAll(ctx context.Context) (map[string][]*Report, error) {
	return r.read(ctx, names.LabelCoverage)
}

func (r *Reports) read(ctx context.Context, selector string) (map[string][]*Report, error) {
	list, err := r.client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, r.wrap("read", "list", "", err)
	}
	out := map[string][]*Report{}
	var errs []error
	for i := range list.Items {
		data := map[string]string{}
		for name, text := range list.Items[i].Annotations {
			if field, ours := strings.CutPrefix(name, names.AnnotationReport); ours {
				data[field] = text
			}
		}
		report, err := Decode(data)
		if err != nil {
			errs = append(errs, fmt.Errorf("lease %s/%s: %w", r.ns, list.Items[i].Name, err))
			continue
		}
		report.Written = Written(&list.Items[i], "f:"+names.AnnotationReport+fieldSerial)
		rota := list.Items[i].Labels[names.LabelCoverage]
		out[rota] = append(out[rota], report)
	}
	return out, errors.Join(errs...)
}

func (r *Reports) wrap(what, verb, name string, err error) error {
	if err == nil {
		return nil
	}
	err = permission.Refused(err, permission.Error{Namespace: r.ns, Group: coordinationv1.GroupName, Resource: "leases",
		Verb: verb})
	return fmt.Errorf("%s the report %s of rota %s/%s: %w", what, name, r.ns, r.rota, err)
}
