// Package uninstall finds and removes a rota's objects in a cluster: its fence, slot labels, reports, Leases, table and
// events.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
)

// Options configures a Finder.
type Options struct {
	Rota types.NamespacedName
	// KeepLabels skips the slot labels.
	KeepLabels bool
	// Keeper also removes the keeper that all fences of a cluster share, if there is no other fence. See fence.Keeper.
	Keeper bool
}

// Object is one of the rota's objects.
type Object struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	uid, version    string
}

func (o Object) String() string {
	return o.Resource.Resource + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// Labels is a label on objects of a kind, and the number of these objects.
type Labels struct {
	Resource schema.GroupVersionResource
	Label    string
	Objects  int
}

// Kept is something that is not removed, and why.
type Kept struct{ What, Why string }

// Remains is what was found. Events are only counted.
type Remains struct {
	// Objects are in the order of removal.
	Objects []Object
	Labels  []Labels
	Events  int
	Kept    []Kept
	// Kinds is how many kinds were searched for labels.
	Kinds int
	// Unread lists what was not searched because an aggregated API server does not answer.
	Unread []string
}

// Nothing reports whether nothing was found.
func (r *Remains) Nothing() bool { return len(r.Objects)+len(r.Labels)+r.Events == 0 }

// Finder finds and removes a rota's objects. Its methods must not be called concurrently.
type Finder struct {
	o      Options
	cfg    *rest.Config
	client kubernetes.Interface
	meta   metadata.Interface
	// keys are the rota's possible sharding keys, which determine label names. They are only known while there is a table.
	keys []slot.Key
}

// removeRate is how many labels are removed per second: as many as a labeller writes.
const removeRate = 200

// NewFinder returns a Finder. It sends no request.
func NewFinder(cfg *rest.Config, o Options) (*Finder, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = removeRate, removeRate
	cfg.WarningHandler = rest.NoWarnings{} // of deprecated kinds
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Finder{o: o, cfg: cfg, client: client, meta: meta}, nil
}

// Resources of the rota's objects.
var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	leases     = coordinationv1.SchemeGroupVersion.WithResource("leases")
	admission  = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	policies   = admission.WithResource("validatingadmissionpolicies")
	bindings   = admission.WithResource("validatingadmissionpolicybindings")
)

// ErrForeign is returned by Find if the ConfigMap with the rota's name is not a table.
var ErrForeign = errors.New("this ConfigMap is not a rota's table")

// Find finds the rota's objects.
func (f *Finder) Find(ctx context.Context) (*Remains, error) {
	out := &Remains{}
	fences, err := f.fence(ctx, out)
	if err != nil {
		return nil, err
	}
	cm, err := f.table(ctx)
	if err != nil {
		return nil, err
	}
	if !f.o.KeepLabels {
		if err := f.labels(ctx, out); err != nil {
			return nil, err
		}
	}
	out.Objects = append(out.Objects, fences...)
	for _, label := range []string{names.LabelCoverage, names.LabelRota} { // reports, then members' Leases
		list, err := f.leases(ctx, label)
		if err != nil {
			return nil, err
		}
		for _, l := range list {
			out.Objects = append(out.Objects, object(leases, &l))
		}
	}
	out.Objects = append(out.Objects, cm...)
	if err := f.elections(ctx, out); err != nil {
		return nil, err
	}
	events, err := f.events(ctx)
	if err != nil {
		return nil, err
	}
	out.Events = len(events)
	return out, nil
}

func object(resource schema.GroupVersionResource, o metav1.Object) Object {
	return Object{resource, o.GetNamespace(), o.GetName(), string(o.GetUID()), o.GetResourceVersion()}
}

// refused adds the missing rule to a permission error.
func refused(err error, resource schema.GroupVersionResource, namespace, verb string) error {
	return permission.Refused(err, permission.Error{
		Namespace: namespace, Group: resource.Group, Resource: resource.Resource, Verb: verb,
	})
}

// table returns the ConfigMap, if it exists, and sets the keys.
func (f *Finder) table(ctx context.Context) ([]Object, error) {
	cm, err := f.client.CoreV1().ConfigMaps(f.o.Rota.Namespace).Get(ctx, f.o.Rota.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, refused(err, configMaps, f.o.Rota.Namespace, "get")
	case cm.Labels[names.LabelRota] != f.o.Rota.Name:
		return nil, fmt.Errorf("%w: it has no label %s=%s", ErrForeign, names.LabelRota, f.o.Rota.Name)
	}
	if t, err := table.Decode(cm.Data); err == nil {
		f.keys = []slot.Key{t.Key}
	}
	return []Object{object(configMaps, cm)}, nil
}

func (f *Finder) leases(ctx context.Context, label string) ([]coordinationv1.Lease, error) {
	list, err := f.client.CoordinationV1().Leases(f.o.Rota.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: label + "=" + f.o.Rota.Name})
	if err != nil {
		return nil, refused(err, leases, f.o.Rota.Namespace, "list")
	}
	return list.Items, nil
}

// elections records leader election Leases in the rota's namespace that the rota held when it crashed.
func (f *Finder) elections(ctx context.Context, out *Remains) error {
	list, err := f.client.CoordinationV1().Leases(f.o.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return refused(err, leases, f.o.Rota.Namespace, "list")
	}
	for i := range list.Items {
		if ptr.Deref(list.Items[i].Spec.HolderIdentity, "") == names.ElectionHolder+f.o.Rota.String() {
			out.Kept = append(out.Kept, Kept{"lease " + list.Items[i].Namespace + "/" + list.Items[i].Name, "it is leader " +
				"election's. The rota held it last; a stock replica takes it after it has expired"})
		}
	}
	return nil
}

// fence returns the binding and the policy, and the keeper if it is to be removed.
func (f *Finder) fence(ctx context.Context, out *Remains) (found []Object, err error) {
	api := f.client.AdmissionregistrationV1()
	bound, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // the cluster does not support such policies
	}
	if err != nil {
		return nil, refused(err, bindings, "", "list")
	}
	all, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, refused(err, policies, "", "list")
	}
	own := fence.Options{Rota: f.o.Rota}.ObjectName()
	var keeper []Object
	others := 0
	add := func(resource schema.GroupVersionResource, o metav1.Object) {
		switch {
		case o.GetName() == own:
			found = append(found, object(resource, o))
		case o.GetName() == fence.KeeperName:
			keeper = append(keeper, object(resource, o))
		case o.GetLabels()[names.LabelRota] != "":
			others++
		}
	}
	for i := range bound.Items {
		add(bindings, &bound.Items[i])
	}
	for i := range all.Items {
		add(policies, &all.Items[i])
	}
	switch {
	case len(keeper) == 0:
	case others > 0:
		out.Kept = append(out.Kept, Kept{"policy " + fence.KeeperName, "the fences of other rotas need it"})
	case !f.o.Keeper:
		out.Kept = append(out.Kept, Kept{"policy " + fence.KeeperName, "it matches no request, and a fence that is applied " +
			"later relies on it having stayed; --keeper removes it if you will never use a fence again"})
	default:
		found = append(found, keeper...)
	}
	return found, nil
}

// events returns the names of the rota's events, by the API that serves them.
func (f *Finder) events(ctx context.Context) (found []string, err error) {
	o := metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": "ConfigMap", "involvedObject.name": f.o.Rota.Name}.String(),
	}
	list, err := f.client.CoreV1().Events(f.o.Rota.Namespace).List(ctx, o)
	if err != nil {
		return nil, refused(err, schema.GroupVersionResource{Version: "v1", Resource: "events"}, f.o.Rota.Namespace, "list")
	}
	for _, e := range list.Items {
		if e.ReportingController == names.Prefix+"/rota" {
			found = append(found, e.Name)
		}
	}
	return found, nil
}
