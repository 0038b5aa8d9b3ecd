package delivery

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// A kind that the API server does not serve, because its CustomResourceDefinition was deleted for instance, must not
// keep the slots of all other kinds from moving. Slots are taken for empty of it, and the whole is listed when it is
// served again. A 404 is no proof that objects are gone, so nothing is told of those that a store has: if they are,
// the watch says so, or that list.

// errVacant ends a wait for what does not come while the kind is not served.
var errVacant = errors.New("the kind is not served")

// notServed says that the API server does not know the kind. It says so in the same words as a gateway that does not
// know the path.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// answered notes how the upstream answered, and returns whether it does not serve the kind.
func (s *source) answered(err error) bool {
	absent := notServed(err)
	if err != nil && !absent {
		return false // nothing is known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent == absent {
		return absent
	}
	s.absent = absent
	log := s.inf.share.log.WithValues("kind", s.inf.kind.String())
	if absent {
		log.Error(err, "The API server does not serve this kind (any more): is its CustomResourceDefinition installed? "+
			"Until it is, the kind counts as empty; other kinds are not held up")
	} else {
		log.Info("The API server serves this kind again; listing it")
	}
	s.changed()
	return absent
}

// answeredList is answered for a list of objects of all slots, or of some.
func (s *source) answeredList(err error) (absent bool) {
	absent = s.answered(err)
	switch {
	case err == nil:
		s.succeeds(RequestList)
	case !apierrors.IsResourceExpired(err): // it begins anew
		s.failing(RequestList, err, absent) // answered tells
	}
	return absent
}

// vacant says that the kind is not served and that nobody reads a stream of it: its slots need not be waited for.
// s.mu is held.
func (s *source) vacant() bool { return s.absent && (s.pump == nil || s.pump.over) }

// served calls a wait, and ends it with nil once the source is vacant, or need not be waited for because it cannot
// list.
func (s *source) served(ctx context.Context, f func(context.Context) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	go func() {
		if s.wait(inner, func() bool { return s.vacant() || s.excused(begun) }) == nil {
			cancel(errVacant)
		}
	}()
	err := f(inner)
	if errors.Is(context.Cause(inner), errVacant) {
		return nil
	}
	return err
}
