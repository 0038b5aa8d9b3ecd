package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
)

// Defaced is what a load writes into children.
const Defaced = "defaced"

// ChildKind is a kind of which every Website owns an object.
type ChildKind struct {
	object func() client.Object
	list   func() client.ObjectList
	name   func(site string) string
	// Patch and PatchBody deface an object.
	Patch     types.PatchType
	PatchBody string
}

// ChildKinds are the kinds of a Website's children.
var ChildKinds = []ChildKind{
	{
		func() client.Object { return &corev1.ConfigMap{} },
		func() client.ObjectList { return &corev1.ConfigMapList{} }, website.PageName,
		types.MergePatchType, `{"data":{"` + website.PageFile + `":"` + Defaced + `"}}`,
	}, {
		func() client.Object { return &appsv1.Deployment{} },
		func() client.ObjectList { return &appsv1.DeploymentList{} }, asIs,
		types.StrategicMergePatchType,
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"` + Defaced + `"}]}}}}`,
	}, {
		func() client.Object { return &corev1.Service{} }, func() client.ObjectList { return &corev1.ServiceList{} }, asIs,
		types.MergePatchType, `{"spec":{"selector":{"` + Defaced + `":"yes"}}}`,
	},
}

func asIs(site string) string { return site }

// Of returns the Website's child of the kind, empty.
func (k ChildKind) Of(site types.NamespacedName) client.Object {
	obj := k.object()
	obj.SetNamespace(site.Namespace)
	obj.SetName(k.name(site.Name))
	return obj
}

// Children are counts of the Websites' children: those that must exist, those that exist and are right, and those that
// belong to no Website.
type Children struct {
	Total, Right, Stray int
	// Example is what is wrong with one of them.
	Example string
}

func (c *Children) wrong(format string, args ...any) { c.Example = fmt.Sprintf(format, args...) }

// SurveyChildren compares all children with their Websites and Secrets. Those of a Website that is gone, and whose page
// is not, are not judged.
func (c *Cluster) SurveyChildren(ctx context.Context, pages website.Pages) (out Children, err error) {
	in := client.InNamespace(c.Sites)
	sites, err := c.Websites(ctx)
	if err != nil {
		return out, err
	}
	var secrets corev1.SecretList
	if err := c.Client.List(ctx, &secrets, in); err != nil {
		return out, err
	}
	byOwner := map[types.UID]*webv1.Website{}
	checksums := map[string]string{}
	for i := range sites {
		byOwner[sites[i].UID] = &sites[i]
	}
	for i := range secrets.Items {
		checksums[secrets.Items[i].Name] = website.Checksum(&secrets.Items[i])
	}
	out.Total = len(ChildKinds) * len(sites)
	for _, kind := range ChildKinds {
		list := kind.list()
		if err := c.Client.List(ctx, list, in); err != nil {
			return out, err
		}
		have := 0
		err := eachItem(list, func(obj client.Object) {
			ref := metav1.GetControllerOf(obj)
			if ref == nil {
				return // a cluster's own, such as the ConfigMap with its certificate authority
			}
			site := byOwner[ref.UID]
			switch {
			case site == nil && !pages.Published(types.NamespacedName{Namespace: c.Sites, Name: ref.Name}):
				out.Stray++
				out.wrong("%T %s belongs to no Website", obj, obj.GetName())
			case site == nil:
			case obj.GetName() != kind.name(site.Name):
				out.wrong("%T %s is one too many for its Website", obj, obj.GetName())
			default:
				have++
				if problem := compare(obj, site, checksums[site.Spec.SecretName]); problem != "" {
					out.wrong("%T %s: %s", obj, obj.GetName(), problem)
				} else {
					out.Right++
				}
			}
		})
		if err != nil {
			return out, err
		}
		if have < len(sites) {
			out.wrong("%d of %T are missing", len(sites)-have, kind.object())
		}
	}
	return out, nil
}

// compare says how a child is not as it has to be.
func compare(child client.Object, site *webv1.Website, certificate string) string {
	switch o := child.(type) {
	case *corev1.ConfigMap:
		sum := sha256.Sum256([]byte(o.Data[website.PageFile]))
		if len(o.Data) != 1 || hex.EncodeToString(sum[:]) != site.Status.Checksum {
			return "not the page"
		}
	case *appsv1.Deployment:
		containers := o.Spec.Template.Spec.Containers
		switch {
		case o.Spec.Template.Annotations[website.CertificateAnnotation] != certificate:
			return "not the present certificate"
		case len(containers) != 1 || containers[0].Image == Defaced ||
			ptr.Deref(o.Spec.Replicas, 1) != ptr.Deref(site.Spec.Replicas, 1):
			return "defaced"
		}
	case *corev1.Service:
		secure := site.Spec.SecretName != ""
		if len(o.Spec.Selector) != 2 || len(o.Spec.Ports) != 1 || (o.Spec.Ports[0].Port == 443) != secure {
			return "defaced"
		}
	}
	return ""
}

// Sweep deletes the children that are left of Websites that are gone, as the garbage collector does, which a control
// plane of our own has not. It leaves those whose page is not withdrawn.
func (c *Cluster) Sweep(ctx context.Context, pages website.Pages) error {
	var errs []error
	for _, kind := range ChildKinds {
		list := kind.list()
		// The children first: one whose Website is created in between must not look like garbage.
		if err := c.Client.List(ctx, list, client.InNamespace(c.Sites)); err != nil {
			return err
		}
		sites, err := c.Websites(ctx)
		if err != nil {
			return err
		}
		there := map[types.UID]bool{}
		for i := range sites {
			there[sites[i].UID] = true
		}
		errs = append(errs, eachItem(list, func(obj client.Object) {
			ref := metav1.GetControllerOf(obj)
			if ref == nil || there[ref.UID] {
				return
			}
			if !pages.Published(types.NamespacedName{Namespace: c.Sites, Name: ref.Name}) {
				errs = append(errs, client.IgnoreNotFound(c.Client.Delete(ctx, obj)))
			}
		}))
	}
	return errors.Join(errs...)
}

func eachItem(list client.ObjectList, do func(client.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok {
			do(obj)
		}
		return nil
	})
}
