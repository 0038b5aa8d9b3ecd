package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

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
