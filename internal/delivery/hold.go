package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// ErrReleased is returned by Warm and Load if the slots were released meanwhile.
var ErrReleased = errors.New("the slots were released")

// Hold makes the slots wanted. Informers of sharded kinds that run begin to list them; those that start later list them
// then. Hold does not block, and handlers do not hear of the slots before Open. Calls of Hold and Release take effect
// in their order. Warm and Load only wait; they do not change which slots are wanted.
func (s *Share) Hold(set slot.Set) {
	s.hold(set, slot.Set{})
}

func (s *Share) hold(set, anew slot.Set) {
	s.Want(set, anew)
	for _, inf := range s.Active() {
		inf.Source.Wake()
	}
}

// HoldAnew is Hold for slots for which Load will be called with a cause other than CauseHanded. Slots that were not
// held are listed from now on, and Load then waits for nothing else.
func (s *Share) HoldAnew(set slot.Set) {
	anew := set.Minus(s.Held())
	if !anew.Empty() {
		for _, inf := range s.Active() {
			inf.Source.Renew(anew)
		}
	}
	s.hold(set, anew)
}

// Warm returns when the stores of all running informers of sharded kinds hold the slots (rule R8). Hold must have been
// called for them. Lists that fail are tried again until ctx ends. If the slots' owner leaves, a kind that was listed
// before and has been failing since is not waited for; see Lacks. The error is ErrReleased if slots are not held any
// more, or ctx's cause.
func (s *Share) Warm(ctx context.Context, set slot.Set) error { return s.awaitStores(ctx, set, false) }

// awaitStores waits until the informers' stores hold the slots. final is true if the slots are this member's even if it
// lacks kinds.
func (s *Share) awaitStores(ctx context.Context, set slot.Set, final bool) error {
	begun := time.Now()
	for _, inf := range s.Active() {
		lacks, released, err := inf.Source.AwaitSlots(ctx, set, final, begun)
		if released {
			return ErrReleased
		}
		if lacks {
			s.recount() // before the slots open
		}
		if err != nil && !errors.Is(err, feed.ErrStopped) {
			return fmt.Errorf("informer of %s: holding slots %v: %w", inf.Kind, set, err)
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
// held is true if this member held the slots all along; the stores are complete then. Load does not wait for kinds that
// cannot be listed; see Lacks. It returns the same errors as Warm.
func (s *Share) Load(ctx context.Context, set slot.Set, cause table.Cause, versions table.Versions, held bool) error {
	if held {
		return s.awaitStores(ctx, set, true)
	}
	before := s.TakeAnew(set)
	for _, inf := range s.Active() {
		if all := inf.WithOrphans(set); inf.Source.Outdates(all) {
			inf.Source.Refresh(all)
		}
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
	var behind []*feed.Informer
	for _, inf := range s.Active() {
		switch version, named := versions[inf.VersionKey()]; {
		case !named:
		case version == table.List:
			inf.Source.Distrusts(set)
			inf.Source.Refresh(set)
		default:
			inf.Source.HandedOn(version)
			behind = append(behind, inf)
		}
	}
	named := func(inf *feed.Informer) (string, error) { return versions[inf.VersionKey()], nil }
	if err := s.follow(ctx, set, behind, named); err != nil {
		return err
	}
	s.reachShared(ctx, versions)
	return nil
}

// barrier waits until all stores hold what was sent to them. It skips kinds that all of the slots go without.
func (s *Share) barrier(ctx context.Context, set slot.Set) error {
	for _, inf := range s.Active() {
		if inf.Source.WithoutAll(set) {
			continue
		}
		err := inf.Source.Served(ctx, func(ctx context.Context) error {
			return inf.Reads.Settled(ctx)
		})
		if err != nil && !errors.Is(err, feed.ErrStopped) {
			return fmt.Errorf("informer of %s: %w", inf.Kind, err)
		}
	}
	return nil
}

// Shut silences the handlers for the slots at once; a handler call that has begun may still be running. The stores keep
// the slots, and deletions are recorded for the next Open.
func (s *Share) Shut(set slot.Set) {
	s.Silence(set)
	s.WakeReads()
}

// Release drops the slots' objects from the stores, without notifying handlers, some time after it returns (rule R10).
// A later Hold of the slots comes after that, or finds the objects still there.
func (s *Share) Release(set slot.Set) {
	s.Shut(set)
	s.Drop(set)
	s.Released(set)
	for _, inf := range s.Active() {
		inf.Source.TakeSince(set)
		inf.Source.Wake()
		inf.Source.Released(set)
	}
	if s.lacking.Load() != nil {
		s.recount()
	}
}
