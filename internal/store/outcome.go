package store

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// outcome returns the outcome of a write from its error. If sent is false, no byte of its body left the process, so
// there is no doubt.
//
// An answer that an API server gives before or instead of writing is definite. A 5xx is not: etcd may commit a write
// that the API server gave up, and a gateway does not know.
func outcome(err error, sent bool) member.Outcome {
	if err == nil {
		return member.OutcomeDone
	}
	inDoubt := member.OutcomeUnknown
	if !sent {
		inDoubt = member.OutcomeFailed
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return inDoubt
	}
	switch code := int(status.Status().Code); {
	case code == http.StatusNotFound && byGateway(err):
		return member.OutcomeFailed
	case byGateway(err) && code != http.StatusTooManyRequests:
		return inDoubt
	case code == http.StatusConflict:
		return member.OutcomeConflict
	case code == http.StatusNotFound:
		return member.OutcomeMissing
	case code == http.StatusRequestTimeout:
		return inDoubt
	case code >= 400 && code < 500:
		return member.OutcomeFailed
	default:
		return inDoubt
	}
}

// notFound reports whether the API server has no such object. A gateway's 404 does not mean that. Trusting it would end
// a member whose Lease exists, or create a second table.
func notFound(err error) bool { return apierrors.IsNotFound(err) && !byGateway(err) }

// byGateway reports whether the answer does not have the form of an API server's answer.
func byGateway(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
