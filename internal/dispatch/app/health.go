package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// check is a readiness check. The request is ignored.
type check func(*http.Request) error

// health answers probes.
type health struct {
	checks []check
	// alive returns if nothing is stuck.
	alive func()

	mu     sync.Mutex
	before string // why the dispatcher does not serve yet, or no longer
}

// stuckAfter is how long alive may take.
const stuckAfter = 5 * time.Second

// at sets why the dispatcher does not serve. It is "" if it serves.
func (h *health) at(before string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = before
}

// stage implements check.
func (h *health) stage(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.before != "" {
		return errors.New("the dispatcher does not serve: " + h.before)
	}
	return nil
}

// serve adds the paths of the probes.
func (h *health) serve(mux *http.ServeMux) {
	h.at("it is starting")
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		for _, c := range h.checks {
			if err := c(r); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		done := make(chan struct{})
		go func() {
			h.alive()
			close(done)
		}()
		select {
		case <-done:
			_, _ = fmt.Fprintln(w, "ok")
		case <-time.After(stuckAfter):
			http.Error(w, "the queue of the dispatcher is stuck", http.StatusServiceUnavailable)
		}
	})
}
