package engine

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// WrapConfig implements rota.Rota.WrapConfig.
func (r *Engine) WrapConfig(cfg *rest.Config) *rest.Config { return r.writes.WrapConfig(cfg) }

// WrapTransport implements rota.Rota.WrapTransport.
func (r *Engine) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return r.writes.WrapTransport(next)
}

// Wrote implements rota.Rota.Wrote.
func (r *Engine) Wrote(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	r.writes.Wrote(ctx, kind, obj)
}
