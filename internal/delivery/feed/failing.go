package feed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rota-dev/rota/slot"
)

// Request is a kind of request that an informer sends to the API server.
type Request uint8

const (
	// RequestUnknown is the zero value.
	RequestUnknown Request = iota
	// RequestList is a list of objects.
	RequestList
	// RequestWatch is a watch.
	RequestWatch
	// RequestLookUp reads one object, to find out whether it was deleted or lost its label.
	RequestLookUp
	// requestProbe is the small list that precedes a list of everything. Failing shows it as a list. A list that is
	// refused leaves slots without the kind, which a probe does not; and a watch that works makes a probe needless, but
	// no list.
	requestProbe
	requests
)

// String returns the request in lower case, as metrics show it.
func (r Request) String() string {
	return [...]string{"unknown", "list", "watch", "look-up", "list"}[r]
}

// Failure is a kind of request of an informer that has failed and not succeeded since.
type Failure struct {
	Kind schema.GroupKind
	// Owned is true if the informer holds the kind's objects by their owners.
	Owned   bool
	Request Request
	// Since is when it first failed.
	Since time.Time
	// Err is the latest error.
	Err error
	// Without are the slots that were opened although the kind could not be listed; see Lacks.
	Without slot.Set
}

// String returns a sentence that names the kind, the request, the error and the time.
func (f Failure) String() string {
	return fmt.Sprintf("%s: %s fails since %s: %v", f.Kind, f.Request, f.Since.UTC().Format(time.RFC3339), f.Err)
}

// Unanswered reports whether the API server itself has not answered: it is down, or something in front of it answers.
// It refuses no kind then.
func Unanswered(err error) bool { return utilnet.IsConnectionRefused(err) || unanswered(err) }

// Failing returns the failing requests of informers of sharded kinds, sorted by kind and request. While a list or a
// watch fails, its informer may show old objects.
func (s *Reports) Failing() []Failure {
	var out []Failure
	for _, inf := range s.Active() {
		out = append(out, inf.Source.failures()...)
	}
	slices.SortStableFunc(out, func(a, b Failure) int {
		return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), cmp.Compare(a.Request, b.Request))
	})
	return out
}

// ListError returns why the last list of an informer of the kind failed, or nil. This includes informers of kinds
// that are not sharded.
func (s *Reports) ListError(kind schema.GroupKind) error {
	for _, inf := range s.Where(func(i *Informer) bool { return i.Kind == kind }) {
		if err := inf.Source.listError(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) listError() error {
	if err := s.inf.Whole.failed.Load(); err != nil && *err != nil {
		return *err
	}
	return cmp.Or(s.failure(RequestList).err, s.failure(requestProbe).err)
}

const (
	// ailingAfter is how long a request may fail with errors that are ordinary during a restart of an API server before
	// they are logged.
	ailingAfter = 5 * time.Second
	// ailingAgain is the time until they are logged again.
	ailingAgain = time.Minute
	// diagnoseAfter is how long a request must have failed before diagnose looks for the cause.
	diagnoseAfter = 10 * time.Second
)

// ailing is the recent failures of a kind of request. err is nil while it succeeds. since is the first failure, sent
// when the latest request that failed was sent, logged when the failure was logged last. cause is what diagnose found.
type ailing struct {
	err, cause          error
	since, sent, logged time.Time
}

// ordinary reports whether an error is no reason to log or to list yet: the API server is down or busy. client-go's
// reflector does not report those either.
func ordinary(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}

// unanswered reports whether an error says nothing about the position of a watch: there was no answer, or something in
// front of the API server did.
func unanswered(err error) bool {
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || broken(err) {
		return true
	}
	var status apierrors.APIStatus
	var odd *apierrors.UnexpectedObjectError
	return !errors.As(err, &status) && !errors.As(err, &odd)
}

// broken reports whether a watch ended with its HTTP/2 stream or connection: a proxy reset it, or the server has gone.
// client-go reports that as an event that cannot be decoded, unlike most ends of a connection.
func broken(err error) bool {
	cause, ok := apierrors.StatusCause(err, "ClientWatchDecoding")
	return ok && slices.ContainsFunc([]string{"stream error: stream ID ", "http2: "}, func(text string) bool {
		return strings.Contains(cause.Message, text)
	})
}
