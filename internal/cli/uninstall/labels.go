package uninstall

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

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// page is how many objects are read at a time.
const page = 500

// kind is a kind of objects that can be listed and patched.
type kind struct {
	resource schema.GroupVersionResource
	kind     schema.GroupKind
}

// kinds returns all kinds that the API server serves, each in one version. If the server of a group
// does not answer, found records the group.
func (f *Finder) kinds(found *Remains) (out []kind, err error) {
	lists, err := f.client.Discovery().ServerPreferredResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		for gv, cause := range failed.Groups {
			found.Unread = append(found.Unread, fmt.Sprintf("labels of the kinds of %s: %v", gv, cause))
		}
		slices.Sort(found.Unread)
		err = nil
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists) {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			return nil, parseErr
		}
		for _, r := range list.APIResources {
			if r.Name != "events" { // never labeled
				out = append(out, kind{gv.WithResource(r.Name), schema.GroupKind{Group: gv.Group, Kind: r.Kind}})
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("find the kinds that may have labels: %w; --keep-labels does not look for any", err)
	}
	return out, err
}

// labels finds the slot labels that no other rota uses. Labels do not belong to one rota: all rotas with the same key
// share them.
func (f *Finder) labels(ctx context.Context, out *Remains) error {
	kinds, err := f.kinds(out)
	if err != nil {
		return err
	}
	others, err := f.others(ctx)
	if err != nil {
		return err
	}
	keys := f.keys
	if len(keys) == 0 { // there is no table to determine the key
		keys = []slot.Key{slot.KeyName, slot.KeyNamespace, slot.KeyUID}
	}
	out.Kinds = len(kinds)
	for _, k := range kinds {
		for _, key := range keys {
			for _, label := range []string{sharding.HashLabel(key, k.kind), sharding.OwnerLabel(key, k.kind)} {
				if label == "" {
					continue
				}
				n, err := f.each(ctx, k.resource, label, nil)
				if apierrors.IsServiceUnavailable(err) { // an aggregated API server
					out.Unread = append(out.Unread, err.Error())
					continue
				}
				if err != nil {
					return err
				}
				if n == 0 {
					continue
				}
				if user := others.user(key, k.kind); user != "" {
					out.Kept = append(out.Kept, Kept{fmt.Sprintf("label %s of %d %s", label, n, k.resource.Resource),
						"rota " + user + " may use it"})
					continue
				}
				out.Labels = append(out.Labels, Labels{k.resource, label, n})
			}
		}
	}
	return nil
}

// own reports whether an object is one of the rota's, which is removed with its labels.
func (f *Finder) own(resource schema.GroupVersionResource, namespace, name string) bool {
	switch {
	case namespace != f.o.Rota.Namespace:
		return false
	case resource.GroupResource() == configMaps.GroupResource():
		return name == f.o.Rota.Name
	case resource.GroupResource() == leases.GroupResource():
		return strings.HasPrefix(name, f.o.Rota.Name+".")
	}
	return false
}

// each visits and counts the objects of a kind that have a label, except the rota's. visit may be nil.
func (f *Finder) each(ctx context.Context, resource schema.GroupVersionResource, label string,
	visit func(namespace, name string),
) (n int, err error) {
	o := metav1.ListOptions{LabelSelector: label, Limit: page}
	for {
		list, err := f.meta.Resource(resource).List(ctx, o)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("find labels of %s: %w", resource.GroupResource(), refused(err, resource, "", "list"))
		}
		for i := range list.Items {
			namespace, name := list.Items[i].Namespace, list.Items[i].Name
			if f.own(resource, namespace, name) {
				continue
			}
			n++
			if visit != nil {
				visit(namespace, name)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return n, nil
		}
	}
}

// other is another rota of the cluster, with the kinds in its members' reports. Without reports it may use any kind.
type other struct {
	name  string
	key   slot.Key
	kinds []schema.GroupKind
}

type others []other

// user returns a rota that may use the labels of a kind, or "".
func (all others) user(key slot.Key, kind schema.GroupKind) string {
	for _, o := range all {
		if (o.key == key || o.key == slot.KeyUnknown) && (len(o.kinds) == 0 || slices.Contains(o.kinds, kind)) {
			return o.name
		}
	}
	return ""
}

// others returns the other rotas of the cluster.
func (f *Finder) others(ctx context.Context) (all others, err error) {
	list, err := f.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: names.LabelRota})
	if err != nil {
		return nil, fmt.Errorf("find other rotas that use the same labels: %w",
			errors.Join(refused(err, configMaps, "", "list"), errors.New("--keep-labels does not look for any")))
	}
	for _, cm := range list.Items {
		if cm.Namespace == f.o.Rota.Namespace && cm.Name == f.o.Rota.Name || cm.Labels[names.LabelRota] != cm.Name {
			continue
		}
		o := other{name: cm.Namespace + "/" + cm.Name}
		if t, err := table.Decode(cm.Data); err == nil {
			o.key = t.Key
		}
		reports, err := coverage.NewReports(f.cfg, cm.Namespace, cm.Name)
		if err != nil {
			return nil, err
		}
		// If the reports cannot be read, it may use any kind.
		if read, err := reports.Read(ctx); err == nil {
			for _, r := range read {
				for kind := range r.Digests {
					o.kinds = append(o.kinds, kind)
				}
			}
		}
		all = append(all, o)
	}
	return all, nil
}
