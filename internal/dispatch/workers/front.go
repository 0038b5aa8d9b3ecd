// Package workers serves workers: it is the HTTP side of a dispatcher, as specified in docs/dispatch.md.
//
// A worker may ask any dispatcher of a tier. A poll that finds no keys here also waits at the other dispatchers, and it
// goes to another one first if the keys there have waited longer. Requests about another dispatcher's take are
// forwarded. Dispatchers find each other in the reports of the rota's members.
package workers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Guard authenticates and authorizes. Errors that are an *access.Error are sent to the client. Other errors mean that
// the guard cannot decide now.
type Guard interface {
	// Authenticate returns the sender of a request.
	Authenticate(r *http.Request) (access.User, error)
	// Admit counts a request of a user as in flight until it is released.
	Admit(u access.User) (release func(), err error)
	// Authorize checks whether a user may take keys of a kind in the given namespaces, or in all if there are none.
	Authorize(ctx context.Context, u access.User, kind schema.GroupKind, namespaces []string) error
}

// Options configure a Front.
type Options struct {
	Dispatcher *keeper.Dispatcher
	Kinds      []keeper.Kind
	Guard      Guard
	// Process identifies this process. See NewProcess.
	Process Process
	// Self is the user name with which dispatchers send requests to one another. This user is trusted to act for others.
	Self string
	// Reports returns the addresses of all dispatchers of the tier.
	Reports func(ctx context.Context) ([]Address, error)
	// URL is the URL at which other dispatchers reach this one. Their URLs must have the same scheme.
	URL string
	// Client sends requests to other dispatchers, with this one's token.
	Client *http.Client
	// Observe is called for each answered request. Optional.
	Observe func(path string, code int, problem string)
	Logger  logr.Logger
}

// Process identifies a process with a dispatcher. It is random and never reused.
type Process [8]byte

// NewProcess returns a new number.
func NewProcess() (p Process) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}

func (p Process) String() string { return hex.EncodeToString(p[:]) }

// At is what other dispatchers need to reach this process: its number and its URL.
func (p Process) At(url string) string { return p.String() + " " + url }

// Front is an http.Handler. Create it with New, and call Run.
type Front struct {
	o      Options
	d      *keeper.Dispatcher
	kinds  map[string]keeper.Kind
	names  []string
	secret [32]byte
	mux    *http.ServeMux
	peers  *peers
	// life ends with Run.
	life    context.Context //nolint:containedctx // of work that continues after a request
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	groups  map[group]*waiters
	sizes   map[string]int // number of groups by user
	streams map[uint64]*stream
	sharing sharing
	sum     sum
}

// New returns a Front.
func New(o Options) (*Front, error) {
	if o.Dispatcher == nil || o.Guard == nil || o.Reports == nil || o.Client == nil || o.Self == "" ||
		o.URL == "" || o.Process == (Process{}) {
		return nil, errors.New("front: Dispatcher, Guard, Reports, Client, Self, URL and Process must be set")
	}
	if o.Observe == nil {
		o.Observe = func(string, int, string) {}
	}
	f := &Front{
		o: o, d: o.Dispatcher, kinds: map[string]keeper.Kind{}, mux: http.NewServeMux(), groups: map[group]*waiters{},
		sizes:   map[string]int{},
		streams: map[uint64]*stream{},
	}
	for _, k := range o.Kinds {
		f.kinds[k.Kind.String()] = k
		f.names = append(f.names, k.Kind.String())
	}
	slices.Sort(f.names)
	_, _ = rand.Read(f.secret[:])
	f.peers = newPeers(o, f.found)
	f.life, f.end = context.WithCancel(context.Background())
	f.route()
	return f, nil
}

// Run looks for other dispatchers until the dispatcher has ended. From then on no request waits. Call Wait once the
// server has shut down.
func (f *Front) Run() {
	var background sync.WaitGroup
	background.Go(func() { f.peers.run(f.life) })
	background.Go(func() { f.watchBacklogs(f.life) })
	<-f.d.Over()
	f.end()
	f.mu.Lock()
	for _, s := range f.streams {
		s.finish("this dispatcher ends")
	}
	f.mu.Unlock()
	background.Wait()
}

// Wait returns when all takes that did not reach their workers have been put back. No request may be in flight or
// follow.
func (f *Front) Wait() { f.running.Wait() }

func (f *Front) route() {
	for path, do := range map[string]func(*request) error{
		wire.PathTake: f.take, wire.PathStream: f.stream, wire.PathCredit: f.credit, wire.PathDone: f.done,
		wire.PathExtend: f.extend, wire.PathRelease: f.release,
	} {
		f.mux.Handle(path, f.handle(path, http.MethodPost, do))
	}
	f.mux.Handle(wire.PathStats, f.handle(wire.PathStats, http.MethodGet, f.stats))
	f.mux.Handle(wire.PathFailing, f.handle(wire.PathFailing, http.MethodGet, f.failing))
	f.mux.HandleFunc("GET "+wire.PathOpenAPI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.TypeJSON)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(w, wire.OpenAPI)
		f.o.Observe(wire.PathOpenAPI, http.StatusOK, "")
	})
	f.mux.Handle("/", f.handle("other", "", func(r *request) error {
		return problem(wire.ProblemNotFound, "there is no %s: see %s", r.http.URL.Path, wire.PathOpenAPI)
	}))
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.mux.ServeHTTP(w, r) }

// handle returns a handler for a path.
func (f *Front) handle(path, method string, do func(*request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		r := &request{http: in, w: w, started: time.Now(), code: http.StatusOK}
		problem := r.fail(f.admit(r, method, do))
		f.o.Observe(path, r.code, problem)
		if r.code == codeGone {
			// Otherwise the server would answer 200, and a client that has only stopped sending would believe it.
			panic(http.ErrAbortHandler)
		}
	})
}

// admit authenticates a request and runs it.
func (f *Front) admit(r *request, method string, do func(*request) error) error {
	user, err := f.o.Guard.Authenticate(r.http)
	if err != nil {
		return err
	}
	r.user = user.Name
	if r.forwarded = r.http.Header.Get(headerFor) != ""; r.forwarded {
		if user.Name != f.o.Self {
			return problem(wire.ProblemForbidden, "the header %s is for dispatchers, which are %s; this is %s", headerFor,
				f.o.Self, user.Name)
		}
		if r.user, err = url.QueryUnescape(r.http.Header.Get(headerFor)); err != nil {
			return problem(wire.ProblemInvalid, "the header %s: %v", headerFor, err)
		}
	} else {
		release, err := f.o.Guard.Admit(user)
		if err != nil {
			return err
		}
		defer release()
	}
	if method != "" && r.http.Method != method {
		r.w.Header().Set("Allow", method)
		return problem(wire.ProblemMethod, "%s takes %s, not %s", r.http.URL.Path, method, r.http.Method)
	}
	r.access = user
	return do(r)
}

// mayTake returns the kinds of a request if its user may take their keys.
func (f *Front) mayTake(r *request, kinds []string) ([]string, error) {
	if len(kinds) == 0 {
		kinds = f.names
	}
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	if r.forwarded { // the other dispatcher has asked the guard; during a rollout it may have other kinds
		kinds = slices.DeleteFunc(kinds, func(name string) bool { return f.kinds[name].Kind.Empty() })
		if len(kinds) == 0 {
			return nil, problem(wire.ProblemUnknownKind, "kinds: this dispatcher has %q", f.names)
		}
		return kinds, nil
	}
	for _, name := range kinds {
		k, ok := f.kinds[name]
		if !ok {
			return nil, problem(wire.ProblemUnknownKind, "kinds: %q: these dispatchers have %q", name, f.names)
		}
		if err := f.o.Guard.Authorize(r.http.Context(), r.access, k.Kind, k.Namespaces); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}
