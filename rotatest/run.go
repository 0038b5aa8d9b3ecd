package rotatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Phases of a run.
const (
	creating = "create"
	changing = "change"
	deleting = "delete"
	cleaning = "clean up"
)

// run takes the objects through all phases of their life, with one fault.
type run struct {
	kit   *kit
	fault *fault
	rand  *rand.Rand
	// client is the test's client.
	client     client.Client
	record     *record
	guard      *guard
	reconciles *reconciles
	log        notes
	killer     killer
	// changing is true while the test makes the user's changes in this phase.
	changing atomic.Bool
	// pods counts the Pods of the run.
	pods int
	// restarts counts the members whose managers ended unexpectedly.
	restarts int

	mu sync.Mutex
	// members are the working members, oldest first. all are all members that were started.
	members, all []*member
	// strange describes objects that neither the test nor a member wrote last.
	strange []string
	// happened describes what was done to the members, for the report.
	happened []string
}

func (r *run) notef(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.happened = append(r.happened, fmt.Sprintf(format, args...))
}

// notes returns what was done to the members, for the report.
func (r *run) notes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.happened) == 0 {
		return ""
	}
	return "\n" + indent(strings.Join(r.happened, "\n"))
}

func (k *kit) newRun(f *fault) (*run, error) {
	r := &run{kit: k, fault: f, record: newRecord(k.versions),
		rand: rand.New(rand.NewPCG(k.seed, uint64(len(f.name))))} //nolint:gosec // no secret
	r.reconciles = newReconciles(r)
	r.guard = &guard{dynamic: k.dynamic, record: r.record, begun: k.begun}
	var err error
	r.client, err = k.newClient(&recorder{record: r.record, guard: r.guard})
	return r, err
}

// play runs all phases and returns the state at the end of each.
func (r *run) play(ctx context.Context, want map[string]*state) (states map[string]*state, err error) {
	defer func() { err = errors.Join(err, r.end(ctx, err != nil)) }()
	members := 2
	if r.fault.alone {
		members = 1
	}
	for range members {
		if err := r.newMember(ctx, nil); err != nil {
			return nil, err
		}
	}
	if err := r.await(ctx, "the members share the work", r.unshared); err != nil {
		return nil, err
	}
	if !r.fault.alone {
		if err := r.spread(ctx); err != nil {
			return nil, err
		}
	}
	states = map[string]*state{}
	for _, p := range []struct {
		name string
		do   func(context.Context) error
	}{{creating, r.create}, {changing, r.change}, {deleting, r.delete}} {
		if p.name == changing && r.kit.o.Change == nil {
			continue
		}
		if states[p.name], err = r.phase(ctx, p.name, p.do, want[p.name]); err != nil {
			return nil, &phaseError{p.name, err}
		}
	}
	if r.fault.kills && r.killer.total() == 0 {
		return nil, fmt.Errorf("%s: in no phase did two members make the writes that one member makes, so nothing was "+
			"tested", r.fault.missed())
	}
	if !r.fault.alone {
		if err := r.shared(); err != nil {
			return nil, err
		}
		r.noteGenerated()
	}
	return states, nil
}

// phaseError adds the phase to an error.
type phaseError struct {
	phase string
	err   error
}

func (e *phaseError) Error() string { return fmt.Sprintf("phase %q: %v", e.phase, e.err) }
func (e *phaseError) Unwrap() error { return e.err }

// phase makes the user's changes, disturbs the members meanwhile, and compares the final state with want.
func (r *run) phase(ctx context.Context, name string, do func(context.Context) error, want *state) (*state, error) {
	r.record.enter(name)
	disturbed := make(chan error, 1)
	r.changing.Store(true)
	disturbing, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() { disturbed <- r.fault.disturb(disturbing, r, name) }()
	err := do(ctx)
	r.changing.Store(false)
	if err != nil {
		giveUp(err)
	}
	if other := <-disturbed; err == nil {
		err = other
	}
	if refused := r.guard.err(); refused != nil {
		err = refused // in place of its consequences
	}
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, "the operator has settled", r.unsettled); err != nil {
		return nil, err
	}
	if wrong := r.reconciles.mistakes(); wrong != "" {
		return nil, fmt.Errorf("what members must not do:\n%s", indent(wrong))
	}
	for grace := time.Now().Add(r.quiet() + graceTime); ; {
		got, err := r.snapshot(ctx, want)
		if err != nil || want == nil {
			return got, err
		}
		diff := r.compare(want, got)
		if diff == "" {
			return got, failsNow(want, got)
		}
		if time.Now().After(grace) {
			return nil, &differenceError{diff}
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
		// the operator may have been about to act
		if err := r.await(ctx, "the operator has settled", r.unsettled); err != nil {
			return nil, err
		}
	}
}

// graceTime is how long a state may differ after the operator has settled: it may wait for something, or the machine is
// slow.
const graceTime = 4 * time.Second

// differenceError is returned if the state differs from the one with one member.
type differenceError struct{ diff string }

func (e *differenceError) Error() string {
	return "the objects are not what they are with one member:\n" + indent(e.diff)
}

func (r *run) create(ctx context.Context) error {
	for _, obj := range r.kit.o.Objects {
		fresh, _ := obj.DeepCopyObject().(client.Object)
		if err := r.client.Create(ctx, fresh); err != nil {
			return fmt.Errorf("create %s: %w", r.kit.describe(fresh), err)
		}
	}
	return nil
}

func (r *run) change(ctx context.Context) error {
	return callback(ctx, "Options.Change", func() error { return r.kit.o.Change(ctx, r.client) })
}

func (r *run) delete(ctx context.Context) error {
	for _, obj := range slices.Backward(r.kit.o.Objects) {
		fresh, _ := obj.DeepCopyObject().(client.Object)
		if err := r.client.Delete(ctx, fresh); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", r.kit.describe(fresh), err)
		}
	}
	return nil
}

// working returns the working members.
func (r *run) working() []*member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.members)
}

func (r *run) others(m *member) []*member {
	return slices.DeleteFunc(r.working(), func(other *member) bool { return other == m })
}

func (r *run) remove(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.DeleteFunc(r.members, func(other *member) bool { return other == m })
}

// maxRestarts is how many members may end unexpectedly in a run. On an overloaded machine they may lose their Leases;
// in a cluster, their Pods would be restarted.
const maxRestarts = 3

// revive replaces members that have ended unexpectedly.
func (r *run) revive(ctx context.Context) error {
	for _, m := range r.working() {
		if !m.ended() || m.isKilled() {
			continue
		}
		r.remove(m)
		r.reconciles.gone(m)
		if r.restarts++; r.fault.alone || r.restarts > maxRestarts || m.err == nil {
			return fmt.Errorf("the manager of %s ended unexpectedly: %w", m.name, m.waits())
		}
		if err := r.newMember(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
