package delivery

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rota-dev/rota/slot"
)

// The API server may not serve a kind, for instance because its CustomResourceDefinition was deleted. That must not
// hold up the slots of other kinds. So slots count as empty of the kind, and all of it is listed when it is served
// again. A 404 does not prove that objects are gone, so the store keeps what it has. If the objects are gone, the watch
// or that list says so.

// errVacant ends a wait for a kind that is not served.
var errVacant = errors.New("the kind is not served")

// notServed reports whether the API server does not know the kind. A gateway that does not know the path answers the
// same.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// answered notes whether the upstream serves the kind, as its answer shows. It returns true if it does not.
func (s *source) answered(err error) bool {
	absent := notServed(err)
	if err != nil && !absent {
		return false // the error does not tell
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

// answeredList is answered for a list of the objects of some or all slots that was sent at a time.
func (s *source) answeredList(sent time.Time, err error) (absent bool) {
	return s.answeredAs(RequestList, sent, err)
}

// listed is answeredList for a list of all objects of some slots that has succeeded.
func (s *source) listed() {
	s.answeredList(time.Time{}, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasListed, s.cached.barred = true, slot.Set{}
}

// answeredAs is answered for a list of the given kind.
func (s *source) answeredAs(r Request, sent time.Time, err error) (absent bool) {
	absent = s.answered(err)
	switch {
	case err == nil:
		s.succeeds(r)
	case !apierrors.IsResourceExpired(err): // a list that expired starts over
		s.failing(r, sent, err, absent) // answered has logged an absent kind
	}
	return absent
}

// vacant reports whether the kind is not served and nobody reads a stream of it. Then no slot needs to wait for it.
// s.mu is held.
func (s *source) vacant() bool { return s.absent && (s.pump == nil || s.pump.over) }

// served runs a wait. It ends the wait with nil once the source is vacant, or excused because it cannot list.
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
