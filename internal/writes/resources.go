package writes

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// resources maps resources to kinds, as far as this process has seen them.
type resources struct {
	mu    sync.Mutex
	kinds map[schema.GroupResource]schema.GroupKind
	// watched are the resources that are watched by informers outside of the share. logged are the watched resources for
	// which unknown has returned true.
	watched, logged map[schema.GroupResource]bool
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

// saw learns from a read. The share's informers have their kind in the context. For a watch by another informer, which
// watches the whole resource, saw returns the resource.
func (r *resources) saw(req *http.Request, from cluster) (whole schema.GroupResource, watched bool) {
	query := req.URL.Query()
	kind, ours := feed.KindFrom(req.Context())
	watches := query.Get("watch") == "true" || query.Get("watch") == "1"
	if !ours && (!watches || strings.Contains(query.Get("fieldSelector"), "metadata.name=")) {
		return whole, false
	}
	t, ok := from.target(req)
	switch {
	case !ok || t.name.Name != "":
	case ours:
		r.learn(t.group(), kind)
		feed.NoteSelection(req.Context(), sharding.Selection{Namespace: t.name.Namespace, Selectors: usersSelectors(req)})
		r.reads(t.group(), from)
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.watched == nil {
			r.watched, r.logged = map[schema.GroupResource]bool{}, map[schema.GroupResource]bool{}
		}
		r.watched[t.group()] = true
		return t.group(), true
	}
	return whole, false
}

// reportWhole logs, once for each resource, that an informer outside of the share watches a kind that is sharded.
func (w *Writes) reportWhole(of schema.GroupResource, from cluster) {
	share := w.env.Share
	kind, ok := w.resources.kind(of, share.Known)
	if !ok || w.resources.elsewhere(of, from) || !share.Sharded(kind) && !share.Owned(kind) {
		return
	}
	if _, logged := w.loggedWhole.LoadOrStore(of, true); logged {
		return
	}
	w.env.Log.Info("A sharded kind is watched by an informer of which the rota knows nothing: it holds all objects, its "+
		"handlers run on every member, and when slots come here it may be behind what their former owner wrote. That is "+
		"right for reads that may be old, and in a duty. Otherwise make it with rota.ShareInformer or Rota.NewInformer",
		"kind", kind.String(), "resource", of.String())
}

// unknown reports whether an informer outside of the share watches a resource. It returns true once for each.
func (r *resources) unknown(of schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.watched[of] || r.logged[of] {
		return false
	}
	r.logged[of] = true
	return true
}

// reads notes that an informer of the share reads a resource from a cluster.
func (r *resources) reads(of schema.GroupResource, from cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readFrom == nil {
		r.readFrom = map[schema.GroupResource][]cluster{}
	}
	if !slices.Contains(r.readFrom[of], from) {
		r.readFrom[of] = append(r.readFrom[of], from)
	}
}

// elsewhere reports whether the informers of a resource certainly read it from other clusters than the given one, so
// that they do not show writes there.
func (r *resources) elsewhere(of schema.GroupResource, written cluster) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.readFrom[of]
	return len(read) > 0 && !slices.ContainsFunc(read, func(c cluster) bool { return !c.isOther(written) })
}
