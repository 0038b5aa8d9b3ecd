package writes

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// strays are the places in the program that wrote objects of sharded kinds without the context of a reconcile.
type strays struct {
	mu     sync.Mutex
	logged map[string]struct{}
}

// strayMax is the largest number of places that are logged.
const strayMax = 100

// report logs a write, once for each place. child is true if the object's kind is sharded by its owners' keys.
func (s *strays) report(log logr.Logger, req *http.Request, t target, child bool) {
	at, inSync := caller()
	key := strings.Join([]string{req.Method, t.group().String(), t.sub, req.UserAgent(), at, strconv.FormatBool(inSync)},
		" ")
	s.mu.Lock()
	_, logged := s.logged[key]
	if s.logged == nil {
		s.logged = map[string]struct{}{}
	}
	if !logged && len(s.logged) < strayMax {
		s.logged[key] = struct{}{}
	} else {
		logged = true
	}
	s.mu.Unlock()
	if logged {
		return
	}
	text := "An object of a sharded kind is written without the context of a reconcile: if a reconcile does it, pass " +
		"its context on to the client. Until then the write keeps to the slot of the object that it names, but goes on " +
		"when its reconcile has ended. A controller that is not sharded may do so"
	if child && !inSync {
		text += ". A work queue about children may not: nothing comes to it with a slot. Make it with rota.NewQueueOf and " +
			"the owners' informer"
	}
	log.Info(text, "request", req.Method+" "+req.URL.Path, "userAgent", req.UserAgent(), "at", at)
}

// clients are prefixes of the functions through which requests are sent. The place to log is their caller.
var clients = []string{
	"net/http.", "k8s.io/client-go/", "k8s.io/apimachinery/", "sigs.k8s.io/controller-runtime/pkg/client",
	"github.com/rota-dev/rota/internal/writes.",
	"github.com/rota-dev/rota/ctrlrt.(*writing", "github.com/rota-dev/rota/ctrlrt.(*consistent",
}

// syncs are the files that call sync functions and reconcilers. Files are compared since functions may be inlined.
var syncs = []string{"/internal/controllers/queue.go", "/ctrlrt/builder.go"}

// caller returns the file and line that makes a request, and whether a sync makes it in the worker's goroutine.
func caller() (at string, inSync bool) {
	var pcs [128]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	at = "unknown"
	for {
		f, more := frames.Next()
		ofClient := slices.ContainsFunc(clients, func(prefix string) bool { return strings.HasPrefix(f.Function, prefix) })
		if f.Function != "" && !ofClient && at == "unknown" {
			at = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		inSync = slices.ContainsFunc(syncs, func(file string) bool { return strings.HasSuffix(f.File, file) })
		if !more || inSync {
			return at, inSync
		}
	}
}
