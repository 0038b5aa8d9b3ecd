package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// ErrReleased is returned by Warm and Load where the slots were released meanwhile.
var ErrReleased = errors.New("the slots were released")

// Hold makes the slots wanted: informers of sharded kinds begin to list them, those that start later list them
// then. It does not block, and handlers do not hear of the slots before Open. Calls of Hold and Release take effect in
// their order; the waits for them, Warm and Load, change nothing by themselves.
func (s *Share) Hold(set slot.Set) {
	s.mu.Lock()
	held := s.held.Load().Union(set)
	s.held.Store(&held)
	s.mu.Unlock()
	for _, inf := range s.active() {
		inf.source.wake()
	}
}

// HoldAnew is Hold for slots that Load is about to be called for with a cause other than CauseHanded. Those that were
// not held are listed from now on, which is all that Load then waits for.
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

// takeAnew returns the slots of the set that were held before HoldAnew was called for them, or for which it was not.
func (s *Share) takeAnew(set slot.Set) slot.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.anew)
	s.anew = s.anew.Minus(set)
	return rest
}

// Warm returns when the stores of all informers of sharded kinds that run hold the slots (rule R8), for which Hold was
// called. Failing lists are tried again until ctx ends; a kind that was listed before and has failed since is not
// waited for, see Lacks. It returns ErrReleased where slots are not held any more.
func (s *Share) Warm(ctx context.Context, set slot.Set) error { return s.settled(ctx, set, false) }

// settled waits until the informers' stores hold what is wanted of the slots. final says that they are this member's,
// whatever it lacks.
func (s *Share) settled(ctx context.Context, set slot.Set, final bool) error {
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
				case src.complete(n):
				case src.goesWithout(n), src.excused(begun) && (final || src.core.Lists() > 0):
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

// Load returns when the stores are complete for the slots, for which Hold was called (rule R8): with CauseHanded they
// are when the informers' streams have reached the versions, and those of kinds marked table.List have been listed
// anew. With other causes they are when they show all that was written before the call: slots of which HoldAnew was
// called are listed, those that were held before reach a version that is read now. held says that the slots were this
// member's all along, so that the stores are as good as ever. No kind is waited for that cannot be listed: see Lacks.
// Errors are those of Warm.
func (s *Share) Load(ctx context.Context, set slot.Set, cause table.Cause, versions table.Versions, held bool) error {
	if held {
		return s.settled(ctx, set, true)
	}
	before := s.takeAnew(set)
	if err := s.settled(ctx, set, true); err != nil {
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
			inf.source.refresh(set)
		default:
			behind = append(behind, inf)
		}
	}
	if err := s.follow(ctx, set, behind, func(src *source) (string, error) { return versions[src.inf.versionKey()], nil }); err != nil {
		return err
	}
	s.reachShared(ctx, versions)
	return nil
}

// barrier waits until all stores hold what was sent to them. Those from which the slots go without are left out.
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

// Shut silences the handlers for the slots at once; a call of a handler that has begun may still be running. The
// stores keep the slots, and deletions are recorded for the next Open.
func (s *Share) Shut(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open.Load().Minus(set)
	s.open.Store(&open)
}

// Release drops the slots' objects from the stores, silently, some time after it returns (rule R10). A later Warm
// of the slots comes after that, or finds them still there.
func (s *Share) Release(set slot.Set) {
	s.Shut(set)
	s.mu.Lock()
	held := s.held.Load().Minus(set)
	s.held.Store(&held)
	s.anew = s.anew.Minus(set)
	s.forgetOwed(set)
	s.mu.Unlock()
	s.graves.forget(set)
	for _, inf := range s.active() {
		inf.source.takeSince(set)
		inf.source.wake()
		inf.source.mu.Lock()
		inf.source.without, inf.source.late = inf.source.without.Minus(set), inf.source.late.Minus(set)
		inf.source.changed()
		inf.source.mu.Unlock()
	}
	if s.lacking.Load() != nil {
		s.recount()
	}
}

// Reached returns when the informers of the kinds have seen everything up to the versions, and their handlers have been
// told. An old owner that waits for the versions of its successor's warm lists knows of every deletion that those lists
// do not show any more. On a kind without traffic it takes about two seconds, since the API server has to be asked for
// a bookmark.
func (s *Share) Reached(ctx context.Context, versions table.Versions) error {
	for _, inf := range s.active() {
		version, named := versions[inf.versionKey()]
		if !named {
			continue
		}
		if err := s.reachOne(ctx, inf, version, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Share) reachOne(ctx context.Context, inf *informer, version string, read bool) error {
	err := inf.source.reach(ctx, version, s.patience, read)
	if err != nil && !errors.Is(err, errStopped) {
		return fmt.Errorf("informer of %s: reaching version %s: %w", inf.kind, version, err)
	}
	return nil
}

// reach returns when the stream and the handlers have passed a version. read says that it was read a moment ago: a
// consistent read makes the API server's watch cache learn of the present version, without which no bookmark shows it.
func (s *source) reach(ctx context.Context, version string, patience time.Duration, read bool) error {
	if err := s.chase(ctx, nil, version, patience, read); err != nil {
		return err
	}
	return s.heard(ctx)
}

// chase waits until the stream has reached a version in the slots, and asks for a bookmark after a time, again and again:
// the version may be that of an object that this stream does not bring, or of none. read is that of reach.
//
// An API server sends a watch no bookmark at the version of the latest event of the kind that lay between the watch's
// start and its present: only at a later one. So it is made to learn of a later version before it is asked again.
func (s *source) chase(ctx context.Context, slots []slot.Slot, version string, patience time.Duration, read bool) error {
	for ; ; read = false {
		soon, cancel := context.WithTimeout(ctx, patience)
		err := s.wait(soon, func() bool { return s.core.Reached(slots, version) })
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, errStopped) {
			return err
		}
		if !read {
			if _, err := s.present(ctx); err != nil {
				s.inf.share.log.V(1).Info("List failed", "kind", s.inf.kind, "error", err.Error())
			}
		}
		s.nudge()
		patience = nudgeSeconds * time.Second
	}
}

// heard returns when the store holds what was sent to it, and the handlers have been told.
func (s *source) heard(ctx context.Context) error {
	serial, err := s.barrier(ctx, slot.Set{})
	if err != nil {
		return err
	}
	return s.inf.everyoneSaw(ctx, serial)
}

// mayNudge says that a bookmark has not been asked for just now, by somebody else.
func (s *source) mayNudge() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.nudged) >= nudgePeriod {
		s.nudged = now
		return true
	}
	return false
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

// wait waits until a condition on the source, which is called with s.mu held, is true.
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
