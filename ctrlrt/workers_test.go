package ctrlrt_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// forbidden answers a request with a refusal.
func forbidden(r *http.Request, message string) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`,
		message)
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}
}

// b may not list what its controller Watches, so that its workers never start: it takes no slots from a, which works,
// says why, and joins once it may.
func TestAMemberWithoutWorkersTakesNoSlots(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Namespace(t)
	build := func(mgr *ctrlrt.Manager) error {
		toNothing := handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request { return nil })
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Watches(&corev1.Secret{},
			toNothing).Complete(nothing)
	}
	a := startMember(t, namespace, "a", rota.Options{}, build)
	eventually(t, 30*time.Second, settled(a))

	var refused atomic.Int32
	var allowed atomic.Bool
	cfg := controlplane.For(t).Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/secrets") || allowed.Load() {
				return next.RoundTrip(r)
			}
			refused.Add(1)
			return forbidden(r, "secrets is forbidden"), nil
		})
	})
	b := startMemberVia(t, cfg, namespace, "b", rota.Options{}, build)
	eventually(t, 30*time.Second, func() string {
		if n := refused.Load(); n < 3 {
			return fmt.Sprintf("b was refused the list of Secrets %d times, want 3", n)
		}
		return ""
	})
	require.ErrorSays(t, b.Rota().Ready(nil), "not joined", "controller configmap", "informer of Secret cannot list it", "forbidden")
	if s := a.Rota().Status(); s.Members != 1 || s.Open.Len() != 256 {
		t.Errorf("a sees %d members and has %d slots, want one member with 256", s.Members, s.Open.Len())
	}
	allowed.Store(true)
	eventually(t, 60*time.Second, settled(a, b))
	require.NoError(t, b.Rota().Ready(nil))
}

// isReport says whether a request writes what a member holds.
func isReport(r *http.Request) bool {
	if r.Method == http.MethodPut || r.GetBody == nil {
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".report")
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	text, err := io.ReadAll(body)
	return err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") &&
		strings.Contains(string(text), names.LabelCoverage)
}

// R14: an API server that has just started may refuse what it permits a moment later. A member that was refused when it
// told what it holds tells it again.
func TestR14ReportsAfterARefusal(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Namespace(t)
	cfg := controlplane.For(t).Config()
	var refusals atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if !isReport(r) || refusals.Add(1) > 2 {
				return next.RoundTrip(r)
			}
			return forbidden(r, "leases.coordination.k8s.io is forbidden: User \"x\" cannot update it"), nil
		})
	})
	m := startMemberVia(t, cfg, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing)
	})
	reports, err := coverage.NewReports(controlplane.For(t).Config(), namespace, "test")
	require.NoError(t, err)
	eventually(t, 30*time.Second, func() string {
		all, err := reports.Read(t.Context())
		if err != nil {
			return err.Error()
		}
		if len(all) != 1 || all[0].Member != m.Rota().ID() || refusals.Load() < 3 {
			return fmt.Sprintf("%d reports after %d writes, want that of %s", len(all), refusals.Load(), m.Rota().ID())
		}
		return ""
	})
}
