package labeller_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// fake is an API server with the ConfigMaps of the namespace "ns": it lists and watches metadata, and patches labels.
type fake struct {
	server *httptest.Server

	mu      sync.Mutex
	objects map[string]map[string]string // name to labels
	history []change
	changed chan struct{}
	// intercept may answer a request instead. verb is list, watch, patch or review.
	intercept func(verb string, w http.ResponseWriter, r *http.Request) bool
	requests  []string // verbs with their selectors, or the name patched
	watching  int
	events    int // sent by watches
}

type change struct {
	name        string
	labels, old map[string]string
}

func newFake(t testing.TB) *fake {
	f := &fake{objects: map[string]map[string]string{}, changed: make(chan struct{})}
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(name, set)
}

func (f *fake) putLocked(name string, set map[string]string) {
	f.history = append(f.history, change{name, set, f.objects[name]})
	f.objects[name] = set
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) label(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[name][label]
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.objects[name]; !ok {
		status(w, http.StatusNotFound, "")
		return
	}
	set := labels.Merge(f.objects[name], body.Labels)
	f.putLocked(name, set)
	json.NewEncoder(w).Encode(partial(name, set, len(f.history)))
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, selector string) {
	sel, _ := labels.Parse(selector)
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, set := range f.objects {
		if sel.Matches(labels.Set(set)) && name > r.URL.Query().Get("continue") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
		Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = strconv.Itoa(len(f.history) + 1)
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); len(names) > limit {
		names = names[:limit]
		list.Continue = names[limit-1]
	}
	for _, name := range names {
		list.Items = append(list.Items, partial(name, f.objects[name], 1))
	}
	json.NewEncoder(w).Encode(list)
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request, selector string) {
	sel, _ := labels.Parse(selector)
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	f.mu.Lock()
	f.watching++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.watching--
		f.mu.Unlock()
	}()
	w.(http.Flusher).Flush()
	for next := from - 1; ; next++ {
		f.mu.Lock()
		for next >= len(f.history) {
			changed := f.changed
			f.mu.Unlock()
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
			f.mu.Lock()
		}
		c := f.history[next]
		f.mu.Unlock()
		now, before := sel.Matches(labels.Set(c.labels)), c.old != nil && sel.Matches(labels.Set(c.old))
		kind := map[[2]bool]string{{true, false}: "ADDED", {true, true}: "MODIFIED",
			{false, true}: "DELETED"}[[2]bool{now, before}]
		if kind == "" {
			continue
		}
		json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": partial(c.name, c.labels, next+2)})
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

func partial(name string, set map[string]string, version int) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: set, ResourceVersion: strconv.Itoa(version)},
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
