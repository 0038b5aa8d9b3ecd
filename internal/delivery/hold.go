package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// ErrReleased is returned by Warm and Load if the slots were released meanwhile.
var ErrReleased = errors.New("the slots were released")

// Hold makes the slots wanted. Informers of sharded kinds that run begin to list them; those that start later list them
// then. Hold does not block, and handlers do not hear of the slots before Open. Calls of Hold and Release take effect
// in their order. Warm and Load only wait; they do not change which slots are wanted.
func (s *Share) Hold(set slot.Set) {
	s.mu.Lock()
	held := s.held.Load().Union(set)
	s.held.Store(&held)
	s.mu.Unlock()
	for _, inf := range s.active() {
		inf.source.wake()
	}
}

// HoldAnew is Hold for slots for which Load will be called with a cause other than CauseHanded. Slots that were not
// held are listed from now on, and Load then waits for nothing else.
func (s *Share) HoldAnew(set slot.Set) {
	anew := set.Minus(s.Held())
	if !anew.Empty() {
		for _, inf := range s.active() {
			inf.source.renew(anew)
		}
	}
	s.mu.Lock()
	s.anew = s.anew.Union(anew)
	s.mu.Unlock()
	s.Hold(set)
}

// takeAnew returns the slots of the set that HoldAnew did not bring: those held before, or made wanted by Hold.
func (s *Share) takeAnew(set slot.Set) slot.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.anew)
	s.anew = s.anew.Minus(set)
	return rest
}

// Warm returns when the stores of all running informers of sharded kinds hold the slots (rule R8). Hold must have been
// called for them. Lists that fail are tried again until ctx ends. If the slots' owner leaves, a kind that was listed
// before and has been failing since is not waited for; see Lacks. The error is ErrReleased if slots are not held any
// more, or ctx's cause.
func (s *Share) Warm(ctx context.Context, set slot.Set) error { return s.awaitStores(ctx, set, false) }

// awaitStores waits until the informers' stores hold the slots. final says that the slots are this member's, whatever
// kinds it lacks.
func (s *Share) awaitStores(ctx context.Context, set slot.Set, final bool) error {
	begun := time.Now()
	for _, inf := range s.active() {
		all := inf.withOrphans(set)
		slots := all.Slots()
		src, released, missing := inf.source, false, slot.Set{}
		err := src.wait(ctx, func() bool {
			held := s.held.Load()
			missing = slot.Set{}
			for _, n := range slots {
				switch {
				case set.Has(n) && !held.Has(n):
					released = true
					return true
				case src.complete(n) && (final || !src.isCached(n) || src.ownerLeaves(n, set)):
				case src.goesWithout(n), src.excused(begun) && (final || src.hasListed && src.ownerLeaves(n, set)):
					missing.Add(n)
				default:
					return false
				}
			}
			src.goWithout(missing)
			return true
		})
		if released {
			return ErrReleased
		}
		if !missing.Empty() {
			s.recount() // before the slots open
		}
		if err != nil && !errors.Is(err, errStopped) {
			return fmt.Errorf("informer of %s: holding slots %v: %w", inf.kind, set, err)
		}
	}
	return nil
}

// Load returns when the stores are complete for the slots (rule R8). Hold must have been called for them. What Load
// waits for depends on the cause:
//
//   - CauseHanded: the informers' streams reach the versions. Kinds marked table.List are listed anew.
//   - Other causes: the stores show everything that was written before the call. Slots that HoldAnew brought are
//     listed; slots that were held before reach a version that is read now.
//
// held says that the slots were this member's all along; the stores are complete then. Load does not wait for kinds
// that cannot be listed; see Lacks. Its errors are those of Warm.
func (s *Share) Load(ctx context.Context, set slot.Set, cause table.Cause, versions table.Versions, held bool) error {
	if held {
		return s.awaitStores(ctx, set, true)
	}
	before := s.takeAnew(set)
	for _, inf := range s.active() {
		inf.source.outdates(inf.withOrphans(set))
	}
	if err := s.awaitStores(ctx, set, true); err != nil {
		return err
	}
	if cause != table.CauseHanded {
		if before.Empty() {
			return nil
		}
		return s.latest(ctx, before)
	}
	var behind []*informer
	for _, inf := range s.active() {
		switch version, named := versions[inf.versionKey()]; {
		case !named:
		case version == table.List:
			inf.source.distrusts(set)
			inf.source.refresh(set)
		default:
			inf.source.handedOn(version)
			behind = append(behind, inf)
		}
	}
	named := func(src *source) (string, error) { return versions[src.inf.versionKey()], nil }
	if err := s.follow(ctx, set, behind, named); err != nil {
		return err
	}
	s.reachShared(ctx, versions)
	return nil
}

// barrier waits until all stores hold what was sent to them. It skips kinds that all of the slots go without.
func (s *Share) barrier(ctx context.Context, set slot.Set) error {
	for _, inf := range s.active() {
		if inf.source.withoutAll(set) {
			continue
		}
		err := inf.source.served(ctx, func(ctx context.Context) error {
			_, err := inf.source.barrier(ctx, slot.Set{})
			return err
		})
		if err != nil && !errors.Is(err, errStopped) {
			return fmt.Errorf("informer of %s: %w", inf.kind, err)
		}
	}
	return nil
}

// Shut silences the handlers for the slots at once; a handler call that has begun may still be running. The stores keep
// the slots, and deletions are recorded for the next Open.
func (s *Share) Shut(set slot.Set) {
	s.mu.Lock()
	open, awaited := s.open.Load().Minus(set), s.awaited.Load().Minus(set)
	s.open.Store(&open)
	s.awaited.Store(&awaited)
	s.mu.Unlock()
	s.wakeReads()
}

// Release drops the slots' objects from the stores, without telling handlers, some time after it returns (rule R10). A
// later Hold of the slots comes after that, or finds the objects still there.
func (s *Share) Release(set slot.Set) {
	s.Shut(set)
	s.mu.Lock()
	held := s.held.Load().Minus(set)
	s.held.Store(&held)
	s.anew = s.anew.Minus(set)
	s.mu.Unlock()
	s.Released(set)
	for _, inf := range s.active() {
		inf.source.takeSince(set)
		inf.source.wake()
		inf.source.mu.Lock()
		inf.source.without, inf.source.late = inf.source.without.Minus(set), inf.source.late.Minus(set)
		inf.source.cached.slots = inf.source.cached.slots.Minus(set)
		inf.source.changed()
		inf.source.mu.Unlock()
	}
	if s.lacking.Load() != nil {
		s.recount()
	}
}

// refresh asks for a list of the slots that begins from now on.
func (s *source) refresh(set slot.Set) {
	if set.Empty() {
		return
	}
	s.renew(set)
	s.wake()
}

func (s *source) renew(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Renew(set)
}

// wait waits until a condition on the source is true. done is called with s.mu held.
func (s *source) wait(ctx context.Context, done func() bool) error {
	s.mu.Lock()
	if done() {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{done: done, woken: make(chan struct{})}
	s.waiters[w] = struct{}{}
	s.mu.Unlock()
	var err error
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.done:
		err = errStopped
	}
	s.mu.Lock()
	delete(s.waiters, w)
	s.mu.Unlock()
	return err
}
