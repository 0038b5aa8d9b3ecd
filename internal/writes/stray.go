package writes

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// strays are the places in the program that wrote objects of sharded kinds without the context of a reconcile.
type strays struct {
	mu   sync.Mutex
	told map[string]struct{}
}

// strayMax is how many places are logged.
const strayMax = 100

// tell logs a write, once for each place.
func (s *strays) tell(log logr.Logger, req *http.Request, t target) {
	at := caller()
	key := strings.Join([]string{req.Method, t.group().String(), t.sub, req.UserAgent(), at}, " ")
	s.mu.Lock()
	_, known := s.told[key]
	if s.told == nil {
		s.told = map[string]struct{}{}
	}
	if !known && len(s.told) < strayMax {
		s.told[key] = struct{}{}
	} else {
		known = true
	}
	s.mu.Unlock()
	if known {
		return
	}
	log.Info("An object of a sharded kind is written without the context of a reconcile: if a reconcile does it, pass "+
		"its context on to the client. Until then the write keeps to the slot of the object that it names, but goes on when "+
		"its reconcile has ended. A controller that is not sharded may do so",
		"request", req.Method+" "+req.URL.Path, "userAgent", req.UserAgent(), "at", at)
}

// clients are the packages that requests go through. The place is their caller.
var clients = []string{
	"net/http.", "k8s.io/client-go/", "k8s.io/apimachinery/", "sigs.k8s.io/controller-runtime/pkg/client",
	"github.com/rota-dev/rota/internal/writes.",
	"github.com/rota-dev/rota/ctrlrt.(*writing", "github.com/rota-dev/rota/ctrlrt.(*consistent",
}

// caller returns the file and line that makes a request.
func caller() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		ofClient := slices.ContainsFunc(clients, func(prefix string) bool { return strings.HasPrefix(f.Function, prefix) })
		if f.Function != "" && !ofClient {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
