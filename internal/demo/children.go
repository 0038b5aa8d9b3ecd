package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

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
	"github.com/rota-dev/rota/internal/journal"
	"github.com/rota-dev/rota/internal/stage"
)

const (
	// certificates is how many Secrets the Websites share.
	certificates = 20
	// renewEvery is of how many things that the load does one is the renewal of a certificate, which concerns all
	// Websites that share it.
	renewEvery = 400
	// defaced is what the load writes into children.
	defaced = "defaced"
	// collectAfter is how long after its deletion the children of a Website are deleted, at the earliest: a reconcile that
	// had begun before may still create some.
	collectAfter = 3 * time.Second
)

// childKind is a kind of which every Website owns an object.
type childKind struct {
	object func() client.Object
	list   func() client.ObjectList
	name   func(site string) string
	// patch defaces an object.
	patch     types.PatchType
	patchBody string
}

var childKinds = []childKind{
	{
		func() client.Object { return &corev1.ConfigMap{} },
		func() client.ObjectList { return &corev1.ConfigMapList{} }, website.PageName,
		types.MergePatchType, `{"data":{"` + website.PageFile + `":"` + defaced + `"}}`,
	}, {
		func() client.Object { return &appsv1.Deployment{} },
		func() client.ObjectList { return &appsv1.DeploymentList{} }, asIs,
		types.StrategicMergePatchType,
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"` + defaced + `"}]}}}}`,
	}, {
		func() client.Object { return &corev1.Service{} }, func() client.ObjectList { return &corev1.ServiceList{} }, asIs,
		types.MergePatchType, `{"spec":{"selector":{"` + defaced + `":"yes"}}}`,
	},
}

func asIs(site string) string { return site }

// of returns the Website's child of the kind, empty.
func (k childKind) of(site types.NamespacedName) client.Object {
	obj := k.object()
	obj.SetNamespace(site.Namespace)
	obj.SetName(k.name(site.Name))
	return obj
}

// tamper deletes or defaces a child of the Website. It need not be there yet.
func (l *load) tamper(ctx context.Context, s *stage.Site, choice int) error {
	kind := childKinds[choice/2]
	obj := kind.of(s.NamespacedName)
	var err error
	if choice%2 == 0 {
		err = l.client.Delete(ctx, obj)
	} else {
		err = l.client.Patch(ctx, obj, client.RawPatch(kind.patch, []byte(kind.patchBody)))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tamper with %T %s: %w", obj, obj.GetName(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tampered++
	return nil
}

func certificate(number int) string { return fmt.Sprintf("certificate-%02d", number) }

func secret(number, renewals int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: sitesNamespace, Name: certificate(number)}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey: []byte("certificate " + strconv.Itoa(renewals)), corev1.TLSPrivateKeyKey: []byte("key"),
		},
	}
}

// renew changes a Secret.
func (l *load) renew(ctx context.Context, number int) error {
	l.mu.Lock()
	l.renewals[number]++
	l.renewed++
	next := secret(number, l.renewals[number])
	l.mu.Unlock()
	if err := l.client.Update(ctx, next); err != nil {
		return fmt.Errorf("renew %s: %w", next.Name, err)
	}
	return nil
}

// collect deletes the children of Websites that are gone. The garbage collector of a cluster does the same; the demo's
// own control plane has none. It waits until the page is withdrawn: the deletion of a child wakes the operator, too,
// and its event must not stand in for that of the Website.
func (l *load) collect(ctx context.Context) {
	deletions := l.Deletions()
	all := slices.Concat(l.garbage, deletions[l.collected:])
	l.garbage, l.collected = nil, len(deletions)
	for _, d := range all {
		if journal.Now()-d.Commit < collectAfter || l.pages.Published(d.NamespacedName) {
			l.garbage = append(l.garbage, d)
			continue
		}
		l.Go(func() error {
			var errs []error
			for _, kind := range childKinds {
				errs = append(errs, client.IgnoreNotFound(l.client.Delete(ctx, kind.of(d.NamespacedName))))
			}
			return errors.Join(errs...)
		})
	}
}

// children are counts of the Websites' children: those that must exist, those that exist and are right, and those that
// belong to no Website.
type children struct {
	total, right, stray int
	// example is what is wrong with one of them.
	example string
}

func (c *children) wrong(format string, args ...any) { c.example = fmt.Sprintf(format, args...) }

// surveyChildren compares all children with their Websites and Secrets.
func (e *engine) surveyChildren(ctx context.Context) (c children, err error) {
	in := client.InNamespace(sitesNamespace)
	sites, err := e.cluster.Websites(ctx)
	if err != nil {
		return c, err
	}
	var secrets corev1.SecretList
	if err := e.cluster.Client.List(ctx, &secrets, in); err != nil {
		return c, err
	}
	byOwner := map[types.UID]*webv1.Website{}
	checksums := map[string]string{}
	for i := range sites {
		byOwner[sites[i].UID] = &sites[i]
	}
	for i := range secrets.Items {
		checksums[secrets.Items[i].Name] = website.Checksum(&secrets.Items[i])
	}
	c.total = len(childKinds) * len(sites)
	for _, kind := range childKinds {
		list := kind.list()
		if err := e.cluster.Client.List(ctx, list, in); err != nil {
			return c, err
		}
		have := 0
		err := eachItem(list, func(obj client.Object) {
			ref := metav1.GetControllerOf(obj)
			if ref == nil {
				return // a cluster's own, such as the ConfigMap with its certificate authority
			}
			site := byOwner[ref.UID]
			switch {
			case site == nil && !e.load.pages.Published(types.NamespacedName{Namespace: sitesNamespace, Name: ref.Name}):
				c.stray++
				c.wrong("%T %s belongs to no Website", obj, obj.GetName())
			case site == nil:
			case obj.GetName() != kind.name(site.Name):
				c.wrong("%T %s is one too many for its Website", obj, obj.GetName())
			default:
				have++
				if problem := compare(obj, site, checksums[site.Spec.SecretName]); problem != "" {
					c.wrong("%T %s: %s", obj, obj.GetName(), problem)
				} else {
					c.right++
				}
			}
		})
		if err != nil {
			return c, err
		}
		if have < len(sites) {
			c.wrong("%d of %T are missing", len(sites)-have, kind.object())
		}
	}
	return c, nil
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
		case len(containers) != 1 || containers[0].Image == defaced ||
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

// sweep deletes what is left of Websites that are gone: garbage that collect had not come to.
func (e *engine) sweep(ctx context.Context) error {
	var errs []error
	for _, kind := range childKinds {
		list := kind.list()
		// The children first: one whose Website is created in between must not look like garbage.
		if err := e.cluster.Client.List(ctx, list, client.InNamespace(sitesNamespace)); err != nil {
			return err
		}
		sites, err := e.cluster.Websites(ctx)
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
			if !e.load.pages.Published(types.NamespacedName{Namespace: sitesNamespace, Name: ref.Name}) {
				errs = append(errs, client.IgnoreNotFound(e.cluster.Client.Delete(ctx, obj)))
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
