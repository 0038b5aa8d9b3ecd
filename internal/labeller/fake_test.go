package labeller_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/test/deliverytest"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// fake is an API server with the ConfigMaps of the namespace "ns": it lists and watches metadata, and patches labels.
type fake struct {
	server *httptest.Server
	memory *deliverytest.Memory

	mu sync.Mutex
	// intercept may answer a request instead. verb is list, watch, patch or review.
	intercept func(verb string, w http.ResponseWriter, r *http.Request) bool
	requests  []string // verbs with their selectors, or the name patched
	watching  int
	events    int // sent by watches
}

func newFake(t testing.TB) *fake {
	f := &fake{memory: deliverytest.NewMemory()}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() { f.server.CloseClientConnections(); f.server.Close() })
	return f
}

// config has a dialer of its own because client-go keeps only two connections open over plain HTTP otherwise.
func (f *fake) config() *rest.Config {
	return &rest.Config{Host: f.server.URL, Dial: (&net.Dialer{}).DialContext}
}

// put creates or replaces an object.
func (f *fake) put(name string, set map[string]string) {
	f.memory.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: set}})
}

// label returns an object's label, or "" if there is no such object.
func (f *fake) label(name string) string {
	if obj := f.memory.Get(keyOf(name)); obj != nil {
		return obj.Labels[label]
	}
	return ""
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// asked returns the requests up to now that begin with the prefix.
func (f *fake) asked(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

func (f *fake) watches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watching
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb, about := "list", query.Get("labelSelector")
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/"):
		verb = "review"
	case r.Method == http.MethodPatch:
		verb, about = "patch", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	case query.Get("watch") != "":
		verb = "watch"
	}
	f.mu.Lock()
	f.requests = append(f.requests, verb+" "+about)
	intercept := f.intercept
	f.mu.Unlock()
	if intercept != nil && intercept(verb, w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch verb {
	case "review":
		io.WriteString(w,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	case "patch":
		f.patch(w, r, about)
	case "watch":
		f.watch(w, r, about)
	default:
		f.list(w, r, about)
	}
}

func (f *fake) patch(w http.ResponseWriter, r *http.Request, name string) {
	var body metav1.PartialObjectMetadata
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		status(w, http.StatusBadRequest, "")
		return
	}
	if _, err := f.memory.Relabel(r.Context(), keyOf(name), body.Labels); err != nil {
		status(w, http.StatusNotFound, "")
		return
	}
	json.NewEncoder(w).Encode(partial(f.memory.Get(keyOf(name))))
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, selector string) {
	limit, _ := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
	got, err := cache.ToListerWatcherWithContext(f.memory.ListWatch("", "")).ListWithContext(r.Context(),
		metav1.ListOptions{LabelSelector: selector, Limit: limit, Continue: r.URL.Query().Get("continue")})
	if err != nil {
		status(w, http.StatusGone, "")
		return
	}
	maps := got.(*corev1.ConfigMapList)
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: maps.ListMeta,
	}
	for i := range maps.Items {
		list.Items = append(list.Items, partial(&maps.Items[i]))
	}
	json.NewEncoder(w).Encode(list)
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request, selector string) {
	watched, err := cache.ToListerWatcherWithContext(f.memory.ListWatch("", "")).WatchWithContext(r.Context(),
		metav1.ListOptions{LabelSelector: selector, ResourceVersion: r.URL.Query().Get("resourceVersion")})
	if err != nil {
		status(w, http.StatusGone, "")
		return
	}
	defer watched.Stop()
	f.mu.Lock()
	f.watching++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.watching--
		f.mu.Unlock()
	}()
	w.(http.Flusher).Flush()
	for e := range watched.ResultChan() {
		json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": partial(e.Object.(*corev1.ConfigMap))})
		w.(http.Flusher).Flush()
		f.mu.Lock()
		f.events++
		f.mu.Unlock()
	}
}

// told returns how many events watches have sent.
func (f *fake) told() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events
}

func partial(obj *corev1.ConfigMap) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.Namespace, Name: obj.Name, UID: obj.UID, Labels: obj.Labels, ResourceVersion: obj.ResourceVersion,
		},
	}
}

// status answers with an error of the API machinery. token is for a 410 of a list.
func status(w http.ResponseWriter, code int, token string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(statusOf(code, token))
}

func statusOf(code int, token string) metav1.Status {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: http.StatusText(code),
	}
	s.Continue = token
	if code == http.StatusGone {
		s.Reason = metav1.StatusReasonExpired
	}
	return s
}
