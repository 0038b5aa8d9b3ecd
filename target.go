package rota

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery"
)

// target is what a request is about, according to its path.
type target struct {
	version  schema.GroupVersion
	resource string
	name     types.NamespacedName // its Name is empty for a collection
	sub      string               // the subresource
}

func (t target) group() schema.GroupResource {
	return schema.GroupResource{Group: t.version.Group, Resource: t.resource}
}

var apiVersion = regexp.MustCompile(`^v[1-9]`)

// targetOf parses a request's path, which may begin with the prefix of a proxy. It returns false for a request that is
// not about a resource.
func targetOf(req *http.Request) (target, bool) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var t target
	for i, part := range parts {
		switch {
		case part == "api" && len(parts) > i+2 && apiVersion.MatchString(parts[i+1]):
			t.version.Version, parts = parts[i+1], parts[i+2:]
		case part == "apis" && len(parts) > i+3 && apiVersion.MatchString(parts[i+2]):
			t.version, parts = schema.GroupVersion{Group: parts[i+1], Version: parts[i+2]}, parts[i+3:]
		default:
			continue
		}
		break
	}
	if t.version.Version == "" {
		return target{}, false
	}
	if ofNamespace := len(parts) == 3 && slices.Contains([]string{"status", "finalize"},
		parts[2]); parts[0] == "namespaces" && len(parts) > 2 && !ofNamespace {
		t.name.Namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name.Name = parts[1]
	}
	t.sub = strings.Join(parts[min(2, len(parts)):], "/")
	return t, true
}

// silent are subresources whose POST does not change the object.
var silent = []string{"token", "exec", "attach", "portforward", "proxy", "log"}

// changes reports whether a write to the target changes an object.
func (t target) changes() bool {
	sub, _, _ := strings.Cut(t.sub, "/")
	return !slices.Contains(silent, sub)
}

// resources maps resources to kinds, as far as this process has seen them.
type resources struct {
	mu    sync.Mutex
	kinds map[schema.GroupResource]schema.GroupKind
	// watched are the resources of informers that the share does not know; told are those for which that was logged.
	watched, told map[schema.GroupResource]bool
	// readFrom are the clusters from which informers of the share read.
	readFrom map[schema.GroupResource][]cluster
}

// learn notes the kind of a resource.
func (r *resources) learn(of schema.GroupResource, kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[schema.GroupResource]schema.GroupKind{}
	}
	r.kinds[of] = kind
}

// kind returns the kind of a resource, or else the one of the given kinds whose plural matches.
func (r *resources) kind(of schema.GroupResource, among func() []schema.GroupKind) (schema.GroupKind, bool) {
	r.mu.Lock()
	kind, ok := r.kinds[of]
	r.mu.Unlock()
	if ok {
		return kind, true
	}
	for _, kind := range among() {
		if plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1")); plural.GroupResource() == of {
			return kind, true
		}
	}
	return schema.GroupKind{}, false
}

// saw notes what a read shows: informers of a share carry their kind; others watch whole resources, which it returns.
func (r *resources) saw(req *http.Request, from cluster) (whole schema.GroupResource, watched bool) {
	query := req.URL.Query()
	kind, ours := delivery.KindFrom(req.Context())
	watches := query.Get("watch") == "true" || query.Get("watch") == "1"
	if !ours && (!watches || strings.Contains(query.Get("fieldSelector"), "metadata.name=")) {
		return whole, false
	}
	t, ok := targetOf(req)
	switch {
	case !ok || t.name.Name != "":
	case ours:
		r.learn(t.group(), kind)
		delivery.NoteSelection(req.Context(), delivery.Selection{Namespace: t.name.Namespace, Selectors: usersSelectors(req)})
		r.reads(t.group(), from)
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.watched == nil {
			r.watched, r.told = map[schema.GroupResource]bool{}, map[schema.GroupResource]bool{}
		}
		r.watched[t.group()] = true
		return t.group(), true
	}
	return whole, false
}

// tellWhole logs, once for each resource, that an informer that the share does not know watches a kind of which this
// member has a share.
func (r *Rota) tellWhole(of schema.GroupResource, from cluster) {
	kind, ok := r.resources.kind(of, r.share.Known)
	if !ok || r.resources.elsewhere(of, from) || !r.share.Sharded(kind) && !r.share.Owned(kind) {
		return
	}
	if _, told := r.toldWhole.LoadOrStore(of, true); told {
		return
	}
	r.log.Info("A sharded kind is watched by an informer of which the rota knows nothing: it holds all objects, its "+
		"handlers run on every member, and when slots come here it may be behind what their former owner wrote. That is "+
		"right for reads that may be old, and in a duty. Otherwise make it with rota.ShareInformer or Rota.NewInformer",
		"kind", kind.String(), "resource", of.String())
}

// unknown reports, once for each resource, that an informer that the share does not know watches it.
func (r *resources) unknown(of schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.watched[of] || r.told[of] {
		return false
	}
	r.told[of] = true
	return true
}
