// Package dashboard serves `rota dashboard`: a local page with the live output of `rota status`.
package dashboard

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
)

// Options configures New.
type Options struct {
	Namespace, Name string
	// Watch calls report from one goroutine with each state of the rota, or with the error of reading it, until ctx ends.
	// It runs while a page is open. The page shows an error that it returns.
	Watch func(ctx context.Context, report func(*view.Rota, error)) error
	// Who finds the member that works on an object. Its result is encoded as JSON. It returns a QuestionError for a bad
	// question.
	Who func(ctx context.Context, kind, namespace, name string) (any, error)
	// Hosts are additional host names that browsers may use. IP addresses and localhost are always allowed.
	Hosts []string
	// Replicas, unless nil, adds buttons that start and end replicas.
	Replicas Replicas
}

// Replicas are processes that the page can start and end. Methods may be called concurrently, and must return within a
// few seconds.
type Replicas interface {
	// Add starts a replica, and returns its Pod's name.
	Add(ctx context.Context) (pod string, err error)
	// Stop ends a replica with SIGTERM, so that it leaves the rota first. Kill ends one with SIGKILL.
	Stop(ctx context.Context, pod string) error
	Kill(ctx context.Context, pod string) error
}

// QuestionError wraps an error of Options.Who about a bad question.
type QuestionError struct{ Err error }

func (e QuestionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e QuestionError) Unwrap() error { return e.Err }

const (
	// whoLimit bounds the search for an object.
	whoLimit = 10 * time.Second
	// longestWord bounds a kind, namespace or name in bytes. A kind with its group is the longest.
	longestWord = 512
)

//go:embed page
var files embed.FS

type handler struct {
	o     Options
	hub   *hub
	token string
}

// New returns the handler of the page. Its streams end with their requests.
func New(o Options) http.Handler {
	h := &handler{o: o, hub: newHub(o.Watch), token: rand.Text()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", page("index.html"))
	for _, name := range pageFiles() {
		if name != "index.html" {
			mux.HandleFunc("GET /"+name, page(name))
		}
	}
	mux.HandleFunc("GET /config", h.config)
	mux.HandleFunc("GET /events", h.events)
	mux.HandleFunc("GET /who", h.who)
	if o.Replicas != nil {
		mux.HandleFunc("POST /replicas/add", h.act(func(r *http.Request) (string, error) {
			return o.Replicas.Add(r.Context())
		}))
		for verb, end := range map[string]func(context.Context, string) error{
			"stop": o.Replicas.Stop, "kill": o.Replicas.Kill,
		} {
			mux.HandleFunc("POST /replicas/"+verb, h.act(func(r *http.Request) (string, error) {
				pod := r.URL.Query().Get("pod")
				return pod, end(r.Context(), pod)
			}))
		}
	}
	return guard(o.Hosts, mux)
}

// pageFiles lists the files of the page.
func pageFiles() []string {
	entries, err := fs.ReadDir(files, "page")
	if err != nil {
		panic(err) // they are embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// page serves one of the embedded files.
func page(name string) http.HandlerFunc {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // pageFiles has listed it
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
		_, _ = w.Write(text) // the browser may be gone
	}
}

// config returns the page's settings. The token stays in the page's origin, because other origins cannot read this.
func (h *handler) config(w http.ResponseWriter, _ *http.Request) {
	c := struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Who       bool   `json:"who"`
		Replicas  bool   `json:"replicas"`
		Token     string `json:"token,omitempty"`
	}{Namespace: h.o.Namespace, Name: h.o.Name, Who: h.o.Who != nil, Replicas: h.o.Replicas != nil}
	if c.Replicas {
		c.Token = h.token
	}
	reply(w, http.StatusOK, c)
}

func (h *handler) who(w http.ResponseWriter, r *http.Request) {
	if h.o.Who == nil {
		refuse(w, http.StatusNotFound, "this dashboard cannot search for objects")
		return
	}
	q := r.URL.Query()
	words := [3]string{}
	for i, key := range []string{"kind", "namespace", "name"} {
		words[i] = strings.TrimSpace(q.Get(key))
		if len(words[i]) > longestWord {
			refuse(w, http.StatusBadRequest, key+" is too long")
			return
		}
	}
	if words[0] == "" || words[2] == "" {
		refuse(w, http.StatusBadRequest, "give the kind and the name of an object")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), whoLimit)
	defer cancel()
	answer, err := h.o.Who(ctx, words[0], words[1], words[2])
	switch {
	case errors.As(err, &QuestionError{}):
		refuse(w, http.StatusBadRequest, err.Error())
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
	default:
		reply(w, http.StatusOK, answer)
	}
}

// act handles a button. Only the page has the token.
func (h *handler) act(do func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !same(r.Header.Get(tokenHeader), h.token) {
			refuse(w, http.StatusForbidden, "this page is older than the dashboard: reload it")
			return
		}
		pod, err := do(r)
		if err != nil {
			refuse(w, http.StatusConflict, err.Error())
			return
		}
		reply(w, http.StatusOK, map[string]string{"pod": pod})
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"error": message})
}

func reply(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the browser may be gone
}
