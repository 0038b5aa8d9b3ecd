package engine

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/require"
)

var websiteKind = schema.GroupKind{Group: "web.example.com", Kind: "Website"}

// sites is an API server that serves Websites in one version, or in none. Each of them is without label until it is
// patched.
type sites struct {
	*httptest.Server

	mu       sync.Mutex
	version  string // "": not served
	changed  chan struct{}
	bare     []string // names without label
	patched  []string // version/name
	events   []string // reasons
	requests map[string]int
}

func newSites(t *testing.T) *sites {
	s := &sites{changed: make(chan struct{}), requests: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// serve changes the version, and there is one more Website.
func (s *sites) serve(version, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	if name != "" {
		s.bare = append(s.bare, name)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	version, changed, path := s.version, s.changed, r.URL.Path
	s.requests[path]++
	w.Header().Set("Content-Type", "application/json")
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	group, collection := "/apis/web.example.com/"+version, "/apis/web.example.com/"+version+"/websites"
	meta := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	switch {
	case path == "/apis":
		list := metav1.APIGroupList{}
		if gv := (metav1.GroupVersionForDiscovery{GroupVersion: "web.example.com/" + version,
			Version: version}); version != "" {
			list.Groups = append(list.Groups, metav1.APIGroup{Name: "web.example.com",
				Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv})
		}
		answer(list)
	case strings.Contains(path, "/apis/authorization.k8s.io/"):
		_, _ = io.WriteString(w,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	case strings.HasSuffix(path, "/events") && r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.events = append(s.events, string(body))
		_, _ = w.Write(body)
	case version == "":
		http.NotFound(w, r)
	case path == group:
		answer(metav1.APIResourceList{GroupVersion: "web.example.com/" + version, APIResources: []metav1.APIResource{
			{Name: "websites/status", Kind: "Website", Namespaced: true}, {Name: "websites", Kind: "Website", Namespaced: true},
		}})
	case path == collection && r.URL.Query().Get("watch") != "":
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		return
	case path == collection:
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
			Kind: "PartialObjectMetadataList"}}
		list.ResourceVersion = "1"
		for _, name := range s.bare {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{TypeMeta: meta,
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
		}
		answer(list)
	case r.Method == http.MethodPatch && strings.HasPrefix(path, group+"/"):
		name := path[strings.LastIndex(path, "/")+1:]
		s.bare = slices.DeleteFunc(s.bare, func(n string) bool { return n == name })
		s.patched = append(s.patched, version+"/"+name)
		answer(metav1.PartialObjectMetadata{TypeMeta: meta, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
	default:
		http.NotFound(w, r)
	}
	s.mu.Unlock()
}

// eventually waits until the server's state is so.
func (s *sites) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within 30 s: %s; patched %v, asked for %v", what, s.patched, s.requests)
		}
	}
}

// A kind is labelled once it is served, however late, and in another version when the one at hand is served no more.
func TestLabellingFollowsWhatIsServed(t *testing.T) {
	s := newSites(t)
	r, err := New(&rest.Config{Host: s.URL}, Options{Name: "website", Namespace: "operators", Delivery: sharding.SlotLabel,
		Identity: Identity{Pod: "web-0"}})
	require.NoError(t, err)
	require.NoError(t, r.share.Shard(websiteKind))
	r.gate.SetDeadline(time.Hour)
	r.gate.Open(r.cfg.Slots.All(), 1)
	r.labels.Period = 20 * time.Millisecond
	end, err := r.label(t.Context())
	require.NoError(t, err)
	defer end()
	s.eventually(t, "looks for the kind again and again", func() bool { return s.requests["/apis"] > 3 })
	// The server knows of a label before its answer has arrived. If the version goes away in between, nobody counts it.
	labelled := func(site string, n uint64) func() bool {
		return func() bool {
			return slices.Contains(s.patched, site) && r.labels.Stats()[websiteKind].Patched == n
		}
	}
	s.serve("v1", "one")
	s.eventually(t, "labelled once it is installed", labelled("v1/one", 1))
	s.serve("v2", "two")
	s.eventually(t, "labelled in another version, and counted with those before", labelled("v2/two", 2))
	if len(s.events) > 0 {
		t.Errorf("told of %v", s.events)
	}
	s.serve("", "three")
	s.eventually(t, "told that it is not served", func() bool {
		return len(s.events) == 1 && strings.Contains(s.events[0], "KindNotServed") &&
			strings.Contains(s.events[0], "websites.web.example.com")
	})
	s.serve("v2", "")
	s.eventually(t, "labelled when it is back", labelled("v2/three", 3))
}

// What comes to the wrong member is labelled by any; it learns from the answer that the version is gone.
func TestFixesFollowWhatIsServed(t *testing.T) {
	s := newSites(t)
	s.serve("v1", "")
	r, err := New(&rest.Config{Host: s.URL}, Options{Name: "website", Namespace: "operators", Delivery: sharding.SlotLabel,
		Identity: Identity{Pod: "web-0"}})
	require.NoError(t, err)
	require.NoError(t, r.share.Shard(websiteKind))
	if _, _, verdict := r.gate.Enter(t.Context(), 0, gate.Key{}, false); verdict == gate.Admitted {
		t.Fatal("the gate is open")
	}
	r.labels.Period = 20 * time.Millisecond
	end, err := r.label(t.Context())
	require.NoError(t, err)
	defer end()
	wrong := &metav1.ObjectMeta{Namespace: "a", Name: "one"}
	s.serve("v2", "")
	s.eventually(t, "labelled in the version that is served", func() bool {
		s.mu.Unlock()
		r.labels.Mislabelled(websiteKind, wrong)
		s.mu.Lock()
		return slices.Contains(s.patched, "v2/one")
	})
}
