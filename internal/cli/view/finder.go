package view

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	discoverycache "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
)

// ErrNoKind is returned by Finder.Who if the API server serves no such kind.
var ErrNoKind = errors.New("the API server serves no such kind: `kubectl api-resources` lists them")

// ErrBadName is returned by Finder.Who if no object can have that name or namespace.
var ErrBadName = errors.New("no object can have that name")

const (
	// maxListed limits the objects of a kind that are listed to find out whether a member holds one.
	maxListed = 10_000
	listPage  = 1000
	listTime  = 4 * time.Second
)

// Finder finds the member that works on an object. It is safe for concurrent use.
type Finder struct {
	mapper meta.RESTMapper
	client metadata.Interface
}

// NewFinder returns a Finder. It sends no request.
func NewFinder(cfg *rest.Config) (*Finder, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	cached := discoverycache.NewMemCacheClient(disco)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	return &Finder{mapper: mapper, client: client}, nil
}

// Who finds the member of the rota that works on an object. kind is as in kubectl: a resource in singular or plural, a
// short name, or a kind, each with or without its group. If several groups match, it prefers a kind that the rota
// shards. namespace is ignored if the kind is cluster-scoped. The error wraps ErrNoKind, ErrBadName, or the API
// server's error. A missing object is not an error.
func (f *Finder) Who(ctx context.Context, r *Rota, kind, namespace, name string) (*Who, error) {
	m, err := f.Kind(kind, r.Kinds()...)
	if err != nil {
		return nil, err
	}
	about := subject{kind: m.GroupVersionKind.GroupKind(), namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace,
		namespace: namespace, name: name}
	if !about.namespaced {
		about.namespace = ""
	}
	if bad := path.IsValidPathSegmentName(name); name == "" || len(bad) > 0 {
		return nil, fmt.Errorf("name %q: %w: %s", name, ErrBadName, strings.Join(append(bad, "give KIND/NAME"), "; "))
	}
	if about.namespaced && namespace == "" {
		return nil, fmt.Errorf("%s: %w: %s is namespaced, so give a namespace", name, ErrBadName, about.kind.Kind)
	}
	about.object, about.unread = f.client.Resource(m.Resource).Namespace(about.namespace).Get(ctx, name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(about.unread):
		about.object, about.unread = nil, nil
	case apierrors.IsForbidden(about.unread):
		about.object = nil
		about.unread = permission.Refused(about.unread, permission.Error{Namespace: about.namespace, Group: m.Resource.Group,
			Resource: m.Resource.Resource, Verb: "get"})
	case about.unread != nil:
		return nil, fmt.Errorf("get %s: %w", about, about.unread)
	}
	p := r.place(about)
	if p.nowhere != "" && about.unread != nil && p.roles != nil {
		return nil, fmt.Errorf("%s: %s: %w", about, p.nowhere, about.unread)
	}
	return r.judge(about, p, f.list(ctx, r, m, about, p)), nil
}

// Kind resolves a word to a kind. If several match, it returns one of prefer, or kubectl's choice. The error wraps
// ErrNoKind.
func (f *Finder) Kind(word string, prefer ...schema.GroupKind) (*meta.RESTMapping, error) {
	var candidates []schema.GroupVersionKind
	full, short := schema.ParseResourceArg(strings.ToLower(word))
	if full != nil {
		candidates = f.kindsFor(*full)
	}
	if len(candidates) == 0 {
		candidates = f.kindsFor(short.WithVersion(""))
	}
	for _, kind := range prefer {
		for _, c := range candidates {
			if c.GroupKind() == kind {
				return f.mapper.RESTMapping(kind, c.Version)
			}
		}
	}
	if len(candidates) > 0 {
		return f.mapper.RESTMapping(candidates[0].GroupKind(), candidates[0].Version)
	}
	// A kind as in a manifest that is no resource's name, such as Endpoints.v1.
	fullKind, kind := schema.ParseKindArg(word)
	if fullKind != nil {
		if m, err := f.mapper.RESTMapping(fullKind.GroupKind(), fullKind.Version); err == nil {
			return m, nil
		}
	}
	m, err := f.mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("kind %q: %w", word, ErrNoKind)
	}
	return m, err
}

// kindsFor returns the kinds of a resource. It ignores errors, because RESTMapping will return them again.
func (f *Finder) kindsFor(resource schema.GroupVersionResource) []schema.GroupVersionKind {
	if first, err := f.mapper.KindFor(resource); err == nil {
		all, _ := f.mapper.KindsFor(resource)
		return append([]schema.GroupVersionKind{first}, all...)
	}
	all, _ := f.mapper.KindsFor(resource)
	return all
}

// list lists the objects in all slots that share a digest with the object's slot in the owner's report.
func (f *Finder) list(ctx context.Context, r *Rota, m *meta.RESTMapping, about subject, p place) listed {
	report := r.Reports[r.Table.At(p.slot).Owner]
	if p.nowhere != "" || about.object == nil || report == nil || report.Digests[about.kind] == nil {
		return listed{}
	}
	group := groupOf(p.slot, report.Fold)
	o := metav1.ListOptions{Limit: listPage}
	wide := r.unlabelled(about.kind) != nil
	if p.roles.Delivery() == sharding.Filter || wide {
		objects := 0
		for _, other := range r.Reports {
			for _, d := range other.Digests[about.kind] {
				objects += d.Objects
			}
		}
		if objects > maxListed {
			return listed{not: fmt.Sprintf("there are %d objects of the kind, more than this command lists; use `rota verify`",
				objects)}
		}
	}
	for label := range p.roles.Stamps(about.kind, about.object) {
		if !wide { // the members also select by this label, so no member holds objects without it
			o.LabelSelector = labelSelector(label, group, r.Slots)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var out listed
	for n := 0; ; {
		page, err := f.client.Resource(m.Resource).List(ctx, o)
		if err != nil {
			return listed{not: "the objects of the kind could not be listed: " + oneLine(err)}
		}
		for i := range page.Items {
			obj := &page.Items[i]
			if s, ok := p.roles.SlotOf(about.kind, obj); ok && group.Contains(s) {
				item := subject{namespace: obj.Namespace, name: obj.Name}
				out.objects = append(out.objects,
					listedObject{slot: s, hash: sharding.DigestHash(p.roles.Key(), obj), path: item.path()})
			}
		}
		n += len(page.Items)
		if o.Continue = page.Continue; o.Continue == "" {
			return out
		}
		if n > maxListed {
			return listed{not: fmt.Sprintf("there are more than %d objects of the kind, more than this command lists; use "+
				"`rota verify`", maxListed)}
		}
	}
}

// labelSelector selects the objects in slots by their label.
func labelSelector(label string, group slot.Range, slots slot.Count) string {
	width := slot.MaxCount / int(slots)
	terms := []string{label}
	if first := int(group.First) * width; first > 0 { // the API server rejects ">-1"
		terms = append(terms, fmt.Sprintf("%s>%d", label, first-1))
	}
	return strings.Join(append(terms, fmt.Sprintf("%s<%d", label, (int(group.Last)+1)*width)), ",")
}
