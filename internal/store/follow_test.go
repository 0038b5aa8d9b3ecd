package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/require"
)

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		failures int
		random   float64
		want     time.Duration
	}{
		{0, 0, 25 * time.Millisecond},
		{0, 0.5, 50 * time.Millisecond},
		{3, 0.5, 400 * time.Millisecond},
		{7, 0.5, 2 * time.Second},
		{1 << 40, 0, time.Second},
	} {
		if got := Backoff(test.failures, test.random); got != test.want {
			t.Errorf("Backoff(%d, %v) = %v, want %v", test.failures, test.random, got, test.want)
		}
	}
}

// refuse is an API server whose authorizer refuses.
func refuse(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusForbidden, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
			  "message":"leases.coordination.k8s.io is forbidden: User \"web\" cannot list resource \"leases\""}`))}, nil
}

// Without the permissions to list and watch leader election's Lease, a member goes without: that is told once, but as no
// refusal, which would end it. A server that refuses for a moment only is asked again soon, and nothing is told.
func TestElectionWatchMayBeForbidden(t *testing.T) {
	for _, test := range []struct {
		refuses time.Duration
		told    int
		asked   time.Duration // the longest time between two looks
	}{{refusedFor - 5*time.Second, 0, 2 * backoffLast}, {time.Hour, 1, 2 * watchFor}} {
		synctest.Test(t, func(t *testing.T) {
			var told []error
			var at []time.Time
			begun := time.Now()
			server := func(req *http.Request) (*http.Response, error) {
				at = append(at, time.Now())
				return refuse(req)
			}
			k, err := NewKubernetes(&rest.Config{Host: "http://127.0.0.1:1", Transport: roundTrip(server)}, Options{
				Namespace: "operators", Name: "website", Report: func(_ string, err error) { told = append(told, err) }})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), test.refuses)
			defer cancel()
			lease := types.NamespacedName{Namespace: "operators", Name: "operator.example.com"}
			err = k.WatchElection(ctx, lease, func(string, election.Record) { t.Error("something was heard") })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
			if len(told) != test.told {
				t.Errorf("told %v, want %d", told, test.told)
			}
			for _, err := range told {
				var refused *permission.Error
				if errors.As(err, &refused) || !strings.Contains(err.Error(), `verbs: ["list"]`) ||
					!strings.Contains(err.Error(), lease.Name) {
					t.Errorf("told %v, want what is missing, and no permission.Error", err)
				}
			}
			quick := 0
			for n, one := range at[1:] {
				if d := one.Sub(at[n]); d > test.asked {
					t.Errorf("not asked for %v", d)
				}
				if one.Sub(begun) < refusedFor {
					quick++
				}
			}
			if slow := len(at) - quick; quick < 10 || slow > 15 {
				t.Errorf("asked %d times at first, %d times later", quick, slow)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
