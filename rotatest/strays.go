package rotatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/writes"
)

// listed is a resource that can be listed, and its kind.
type listed struct {
	schema.GroupVersionResource
	kind string
}

// resourcesIn returns the namespaced resources that can be listed and deleted, without noise and ignored kinds. It
// leaves out groups whose servers do not answer, because their objects cannot have been written.
func resourcesIn(server discovery.DiscoveryInterface, ignore []schema.GroupKind) (all []listed, err error) {
	lists, err := discovery.ServerPreferredNamespacedResources(server)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("ask the API server for its resources: %w", err)
	}
	usable := discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}
	for _, list := range discovery.FilteredBy(usable, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("ask the API server for its resources: %w", err)
		}
		for _, r := range list.APIResources {
			of := version.WithResource(r.Name)
			if !isNoise(of) && !slices.Contains(ignore, version.WithKind(r.Kind).GroupKind()) {
				all = append(all, listed{of, r.Kind})
			}
		}
	}
	return all, nil
}

// strays returns an error for objects that were created in the run's namespaces by clients whose writes are not
// recorded, except for kinds of Ignore. They are cleaned up with the others.
func (r *run) strays(ctx context.Context) error {
	within := r.places()
	var texts []string
	var errs []error
	for _, resource := range r.kit.resources {
		list, err := r.kit.metadata.Resource(resource.GroupVersionResource).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			continue // its CRD was deleted
		case err != nil:
			errs = append(errs, fmt.Errorf("list %s: %w", resource.Resource, err))
			continue
		}
		for i := range list.Items {
			obj := &list.Items[i]
			about := writes.About{Resource: resource.GroupVersionResource, Name: client.ObjectKeyFromObject(obj)}
			w := write{About: about, verb: "create", uid: obj.UID, created: true}
			if !within[obj.Namespace] || !obj.CreationTimestamp.After(r.kit.begun) || r.record.made(w.place()) {
				continue
			}
			if r.record.lost(obj) {
				r.record.adopt(w) // so that it is cleaned up
			} else if by := managersOf(obj); !r.kit.expected(by) {
				r.record.adopt(w)
				texts = append(texts, fmt.Sprintf("%s by %s", describe(resource.kind, w.Name), strings.Join(by, ", ")))
			}
		}
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		if n := len(texts); n > mostStrays {
			texts = append(texts[:mostStrays], fmt.Sprintf("and %d more", n-mostStrays))
		}
		errs = append(errs, fmt.Errorf("these objects were created by a client that rotatest does not know, so it neither "+
			"saw nor compared them. Have the operator use mgr.GetClient(), or make its clients of mgr.GetConfig(), and use the "+
			"client that Options.Change gets. They are deleted:\n%s", indent(strings.Join(texts, "\n"))))
	}
	return errors.Join(errs...)
}

const mostStrays = 6

// places returns the namespaces of Objects and those that the run created.
func (r *run) places() map[string]bool {
	all := map[string]bool{}
	for _, obj := range r.kit.o.Objects {
		all[obj.GetNamespace()] = true
	}
	_, objects := r.record.touched()
	for p, w := range objects {
		if p.GroupResource == namespaces.GroupResource() && w.created {
			all[p.Name] = true
		}
	}
	delete(all, "")
	delete(all, rotaName) // it contains the rota's own objects
	return all
}

// expected reports, given an object's field managers, whether neither the operator nor the test wrote the object. With
// controllers, the managers are then any but this process; otherwise the API server.
func (k *kit) expected(managers []string) bool {
	if !k.controllers {
		return slices.Equal(managers, []string{"kube-apiserver"})
	}
	process, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return !slices.Contains(managers, process)
}

func managersOf(obj *metav1.PartialObjectMetadata) (managers []string) {
	for _, entry := range obj.ManagedFields {
		managers = append(managers, entry.Manager)
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}
