package engine

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

	"github.com/rota-dev/rota/internal/protocol/member"
)

// startPatience is how long a member waits to join before it logs what it waits for, and the time between such log
// lines.
const startPatience = 10 * time.Second

// startEvents is the time between two events about the wait. API servers keep events for an hour.
const startEvents = 30 * time.Minute

// start is an informer that must run before the member joins.
type start struct {
	kind    schema.GroupKind
	started <-chan struct{}
	client  bool // it uses a client passed to ShareInformer
	owned   bool // by the objects' owners
	// informer is what ShareInformer returned.
	informer cache.SharedIndexInformer
}

// prerequisite is something that must be ready before a member joins. Without it, the member would take slots on which
// it does not work.
type prerequisite struct {
	done <-chan struct{}
	what func() string
}

func (r *Engine) prerequisites() []prerequisite {
	var out []prerequisite
	for _, s := range r.setup.informers() {
		out = append(out, prerequisite{s.started,
			func() string { return fmt.Sprintf("the informer of %s, which was not started", s.kind) }})
	}
	for _, c := range r.controllers.All() {
		out = append(out, prerequisite{c.Begun(), c.Missing})
	}
	return out
}

// waitsFor describes what the member waits for before it joins.
func (r *Engine) waitsFor() []string {
	var out []string
	for _, p := range slices.Concat(r.setup.prerequisites(), r.prerequisites()) {
		select {
		case <-p.done:
		default:
			out = append(out, p.what())
		}
	}
	return append(out, r.reporter.Conflicts()...)
}

// Ready implements rota.Rota.Ready.
func (r *Engine) Ready(*http.Request) error {
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

// awaitStart waits until informers and workers run. If slots opened before, their objects would look deleted or no
// worker would take them. It returns false when ctx ends, and an error if the wiring can never work.
func (r *Engine) awaitStart(ctx context.Context) (bool, error) {
	if !r.await(ctx, r.prerequisites()) {
		return false, nil
	}
	return r.awaitWiring(ctx)
}

// tableErr returns an error if the table is invalid, so that nothing is worked on.
func (r *Engine) tableErr() error {
	if why := r.state.Invalid(); why != "" {
		return fmt.Errorf("rota %s: %s", r.Name(), why)
	}
	return nil
}

// JoinAfter implements rota.Rota.JoinAfter.
func (r *Engine) JoinAfter(what string, done <-chan struct{}) error {
	switch {
	case what == "":
		return fmt.Errorf("rota %s: JoinAfter: say what is waited for, such as \"the controllers to be built\"", r.Name())
	case done == nil:
		return fmt.Errorf("rota %s: JoinAfter %s: its channel is nil, so this member would never join: close one when that "+
			"is done", r.Name(), what)
	}
	if !r.setup.waits(prerequisite{done, func() string { return what }}) {
		return fmt.Errorf("rota %s: JoinAfter %s: Run was called before: call JoinAfter before the member starts", r.Name(),
			what)
	}
	return nil
}

// awaitSetup waits for the prerequisites from JoinAfter. After it has returned, nothing more can be set up. It returns
// false when ctx ends.
func (r *Engine) awaitSetup(ctx context.Context) (bool, error) {
	if !r.await(ctx, r.setup.prerequisites()) { // JoinAfter adds no more after this
		return false, nil
	}
	var errs []error
	for _, f := range r.setup.end() {
		errs = append(errs, f(ctx))
	}
	return true, errors.Join(errs...)
}

// await waits for all prerequisites, and reports what this member waits for if that takes long. It returns false when
// ctx ends.
func (r *Engine) await(ctx context.Context, all []prerequisite) bool {
	late := time.NewTicker(startPatience)
	defer late.Stop()
	skip := 0 // log lines left until the next event
	for _, p := range all {
		for waiting := true; waiting; {
			select {
			case <-p.done:
				waiting = false
			case <-late.C:
				message := "This member takes no slots yet. It waits for " + strings.Join(r.waitsFor(), "; ")
				if skip > 0 {
					skip--
					r.log.Info(message)
					continue
				}
				skip = int(startEvents / startPatience)
				r.emit(ctx, member.Notify{Reason: "NotJoining", Warning: true, Message: message})
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}
