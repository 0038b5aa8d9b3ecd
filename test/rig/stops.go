package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// The places at which a replica stops itself when it is told to.
const (
	// AtReconcile is within a reconcile or a run of a duty, before the write.
	AtReconcile = "reconcile"
	// AtWrite is within the sending of a write, when all checks have been passed.
	AtWrite = "write"
)

// stops lets a process stop itself with SIGSTOP, at a place that a signal from outside could not hit.
type stops struct {
	armed atomic.Pointer[string] // PLACE NAME
}

// obey is for process.Answer. The commands are:
//
//	stop PLACE NAME   print "stopping NANOSECONDS" and stop, at that place, at the next work on the Website, or for the
//	                  duty, of that name
//	status            print "status GOROUTINES"
func (s *stops) obey(line string) string {
	switch command, where, _ := strings.Cut(line, " "); command {
	case "stop":
		s.armed.Store(&where)
	case "status":
		return fmt.Sprint("status ", runtime.NumGoroutine())
	}
	return ""
}

// at stops the process if it was told to stop here. It returns when the process goes on.
func (s *stops) at(place, name string) bool {
	armed := s.armed.Load()
	if armed == nil || *armed != place+" "+name || !s.armed.CompareAndSwap(armed, nil) {
		return false
	}
	fmt.Println("stopping", int64(journal.Now()))
	// The kernel stops the threads one after the other, perhaps this one last. On a busy machine it would send its write
	// first.
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		panic(err)
	}
	<-goOn
	return true
}

// stoppable are the resources that Websites and duties write to.
var stoppable = []string{"/websites/", "/configmaps/"}

// wrap makes each write of a Website, and of a duty, a place to stop at. A write that was stopped is sent even if its
// context has ended meanwhile, as if the thread had stopped between its last check and the system call.
func (s *stops) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		var object string
		for _, resource := range stoppable {
			if _, rest, found := strings.Cut(req.URL.Path, resource); found {
				object = rest
			}
		}
		if s.armed.Load() == nil || !proxy.IsWrite(req) || object == "" {
			return next.RoundTrip(req)
		}
		name, _, _ := strings.Cut(object, "/")
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		ctx := req.Context()
		if s.at(AtWrite, name) {
			ctx = context.WithoutCancel(ctx)
		}
		req = req.Clone(ctx)
		req.Body = io.NopCloser(bytes.NewReader(body))
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
