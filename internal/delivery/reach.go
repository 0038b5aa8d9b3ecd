package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Reached returns when the informers of the kinds have seen everything up to the versions, and their handlers have been
// told. An owner that waits for the versions of its successor's warm lists thereby knows of every deletion that those
// lists do not show. On a kind without traffic it takes about two seconds, since the API server has to be asked for a
// bookmark. The error is ctx's cause, if ctx ends.
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

// reach returns when the stream and the handlers have passed a version. read says that the version was read a moment
// ago: a consistent read tells the API server's watch cache the present version, and without it no bookmark shows that
// version.
func (s *source) reach(ctx context.Context, version string, patience time.Duration, read bool) error {
	if err := s.chase(ctx, nil, version, patience, read); err != nil {
		return err
	}
	return s.heard(ctx)
}

// chase waits until the stream has reached a version in the slots. If that takes long, it asks for bookmarks: the
// version may be that of an object that this stream does not bring, or of no object. For read see reach.
//
// An API server does not send a bookmark at the version of the kind's latest event if that event lies between the
// watch's start and its present; it sends one at a later version only. So chase reads a version before it asks again:
// then the API server knows of a later one.
func (s *source) chase(ctx context.Context, slots []slot.Slot, version string, patience time.Duration,
	read bool,
) error {
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

// mayNudge reports whether to ask for a bookmark now: not if somebody has just done so.
func (s *source) mayNudge() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.nudged) >= nudgePeriod {
		s.nudged = now
		return true
	}
	return false
}

// nudge asks the API server for a bookmark, unless somebody has just done so.
func (s *source) nudge() {
	if !s.mayNudge() {
		return
	}
	select {
	case s.nudges <- struct{}{}:
	default:
	}
}
