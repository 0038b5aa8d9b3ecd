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
	"github.com/rota-dev/rota/test/controlplane"
)

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
			body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
				`"message":"secrets is forbidden"}`
			return &http.Response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(body)), Request: r,
			}, nil
		})
	})
	b := startMemberVia(t, cfg, namespace, "b", rota.Options{}, build)
	eventually(t, 30*time.Second, func() string {
		if n := refused.Load(); n < 3 {
			return fmt.Sprintf("b was refused the list of Secrets %d times, want 3", n)
		}
		return ""
	})
	wantError(t, b.Rota().Ready(nil), "not joined", "controller configmap", "informer of Secret cannot list it", "forbidden")
	if s := a.Rota().Status(); s.Members != 1 || s.Open.Len() != 256 {
		t.Errorf("a sees %d members and has %d slots, want one member with 256", s.Members, s.Open.Len())
	}
	allowed.Store(true)
	eventually(t, 60*time.Second, settled(a, b))
	if err := b.Rota().Ready(nil); err != nil {
		t.Error(err)
	}
}
