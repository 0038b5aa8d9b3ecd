package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rota-dev/rota/internal/delivery/sharding"
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

// The API server may not serve a kind, for instance because its CustomResourceDefinition was deleted. That must not
// hold up the slots of other kinds. So slots count as empty of the kind, and all of it is listed when it is served
// again. A 404 does not prove that objects are gone, so the store keeps what it has. If the objects are gone, the watch
// or that list says so.

// errVacant ends a wait for a kind that is not served.
var errVacant = errors.New("the kind is not served")

// NotServed reports whether the API server does not know the kind. A gateway that does not know the path answers the
// same.
func NotServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

const (
	// diagnoseTimeout bounds the requests of a diagnosis.
	diagnoseTimeout = 30 * time.Second
	// diagnoseAgain is the time until the next one if no cause was found.
	diagnoseAgain = time.Minute
)

// diagnose finds out why the kind's lists or watches fail, and notes it as the cause of the failure. A watch cache that
// cannot be filled answers 429 to watches and to most lists, but a list in pages goes to etcd and has the API server's
// reason, such as an object that cannot be converted. It reads pages up to the one that fails, and then halves that
// one.
func (s *Source) diagnose(r Request, since time.Time) {
	a := s.failure(r)
	if a.err == nil || !a.since.Equal(since) || a.cause != nil {
		return
	}
	ctx, cancel := s.whileRunning(diagnoseTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	var cause error
	if (internal(a.err) || apierrors.IsTooManyRequests(a.err)) && s.diagnosing.CompareAndSwap(false, true) {
		cause = s.culprit(ctx)
		s.diagnosing.Store(false)
	}
	if s.found(r, since, cause) && cause == nil {
		time.AfterFunc(diagnoseAgain, func() { s.diagnose(r, since) })
	}
}

// culprit returns the error with which a list in pages fails, and names the object before the one that cannot be read.
// It returns nil if no page fails, or ctx ends.
func (l *lister) culprit(ctx context.Context) error {
	var last types.NamespacedName
	var cause error
	o := metav1.ListOptions{Limit: l.pageSize()}
	for {
		page, err := l.upstream.list(ctx, sharding.Request{ListOptions: o})
		switch {
		case err != nil && !internal(err):
			return cause
		case err != nil:
			cause = err
			if o.Limit == 1 {
				return unreadable(last, cause)
			}
			o.Limit = (o.Limit + 1) / 2
			continue
		}
		list, err := meta.ListAccessor(page)
		if err != nil || list.GetContinue() == "" {
			return cause
		}
		_ = meta.EachListItem(page, func(obj runtime.Object) error {
			about, err := meta.Accessor(obj)
			if err == nil {
				last = types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}
			}
			return err
		})
		o.Continue = list.GetContinue()
	}
}

func unreadable(last types.NamespacedName, cause error) error {
	if last == (types.NamespacedName{}) {
		return fmt.Errorf("the first object, by namespace and name, cannot be read: %w", cause)
	}
	return fmt.Errorf("the first object after %s, by namespace and name, cannot be read: %w", last, cause)
}

// internal reports whether the API server itself failed to answer.
func internal(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError
}

// watchCache is about slots whose objects come from a list of the API server's watch cache. The cache can answer while
// consistent lists fail, for example because an object was written that cannot be converted: it holds the object as it
// was before. client-go's informers begin with such a list, so slots of a dead owner come with what leader election
// would take over. It is no older than this member's stream of the kind, nor than the versions that a former owner
// handed on. It may lack the latest writes of a former owner that has died. flow.mu guards it.
type watchCache struct {
	// slots have objects from it. at is the version of the oldest of their lists, and since when that was sent.
	slots slot.Set
	at    string
	since time.Time
	// barred are slots for which it must not be asked before the kind has been listed: it is not known which version their
	// former owner wrote.
	barred slot.Set
	// least is the highest version that a former owner handed on.
	least string
	// rechecks is true while a timer is set for the next try to list the kind.
	rechecks bool
}

const (
	// cacheFor is for how long a slot may come with objects that a list of the watch cache has brought.
	cacheFor = 30 * time.Second
	// recheckAfter is the time between two tries to list the kind while slots have objects of the watch cache.
	recheckAfter = 10 * time.Second
)

// recheckKind lists the kind without keeping anything, so that events go on to the store meanwhile. Once it can be
// listed, the slots that have objects of the watch cache are listed again. Otherwise it is tried again later.
func (s *Source) recheckKind() {
	ctx, cancel := s.whileRunning(diagnoseTimeout)
	defer cancel()
	set := s.rechecks(ctx.Err() == nil)
	if set.Empty() {
		return
	}
	sent := time.Now()
	_, err := s.eachListed(ctx, 0, func(runtime.Object) error { return nil })
	s.answeredList(sent, err)
	s.rechecked(err)
	if err == nil {
		s.Refresh(set)
	}
}
