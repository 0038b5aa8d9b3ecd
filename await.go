package rota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// startPatience is how long a member waits to join before it reports what it waits for, and the time between log lines
// about it.
const startPatience = 10 * time.Second

// startEvents is the time between two events about it: API servers keep events for an hour.
const startEvents = 30 * time.Minute

// start is an informer that must run before the member joins.
type start struct {
	kind    schema.GroupKind
	started <-chan struct{}
	client  bool // it reads through a client that ShareInformer was given
	owned   bool // by the objects' owners
	// informer is what ShareInformer returned.
	informer cache.SharedIndexInformer
}

// prerequisite is something without which a member does not join: it would take slots that nobody works on.
type prerequisite struct {
	done <-chan struct{}
	what func() string
}

func (r *Rota) prerequisites() []prerequisite {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []prerequisite
	for _, s := range r.started {
		out = append(out, prerequisite{s.started,
			func() string { return fmt.Sprintf("the informer of %s, which was not started", s.kind) }})
	}
	for _, c := range r.controllers.All() {
		out = append(out, prerequisite{c.Begun(), c.Missing})
	}
	return out
}

// waitsFor says what the member waits for before it joins.
func (r *Rota) waitsFor() []string {
	var out []string
	r.mu.Lock()
	after := r.after
	r.mu.Unlock()
	for _, p := range slices.Concat(after, r.prerequisites()) {
		select {
		case <-p.done:
		default:
			out = append(out, p.what())
		}
	}
	return append(out, r.unlike.texts()...)
}

// Ready is a readiness check. It is nil once the member has joined, with or without slots; before that the error says
// what the member waits for. If a controller turns out to be wired wrongly, Ready is an error for a minute. It is one
// while the table is invalid, since nothing is worked on then. ctrlrt adds it to the manager. The request is ignored.
func (r *Rota) Ready(*http.Request) error {
	if r.state.HasJoined() {
		return errors.Join(r.tableErr(), r.faults.Err())
	}
	if waits := r.waitsFor(); len(waits) > 0 {
		return fmt.Errorf("rota %s: not joined yet, waiting for %s", r.Name(), strings.Join(waits, "; "))
	}
	if err := r.tableErr(); err != nil {
		return fmt.Errorf("not joined yet: %w", err)
	}
	return fmt.Errorf("rota %s: not joined yet", r.Name())
}

// awaitStart waits until informers and workers run. If slots opened before, their objects would look deleted, or nobody
// would work on them. It returns false when ctx ends, and an error if the wiring can never work.
func (r *Rota) awaitStart(ctx context.Context) (bool, error) {
	if !r.await(ctx, r.prerequisites()) {
		return false, nil
	}
	return r.awaitWiring(ctx)
}

// tableErr says why nothing is worked on: the table is invalid.
func (r *Rota) tableErr() error {
	if why := r.state.Invalid(); why != "" {
		return fmt.Errorf("rota %s: %s", r.Name(), why)
	}
	return nil
}
