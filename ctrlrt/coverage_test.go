package ctrlrt_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
)

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
			text := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
				`"message":"leases.coordination.k8s.io is forbidden: User \"x\" cannot update it"}`
			return &http.Response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(text)), Request: r,
			}, nil
		})
	})
	m := startMemberVia(t, cfg, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing)
	})
	reports, err := coverage.NewReports(controlplane.For(t).Config(), namespace, "test")
	noError(t, err)
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
