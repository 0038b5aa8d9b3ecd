package engine

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/test/require"
)

// Workers that write with a client that was not wrapped are told, whatever else is wrapped.
func TestUnwrappedClientsAreTold(t *testing.T) {
	type clients struct{ plain, wrapped kubernetes.Interface }
	write := func(ctx context.Context, t *testing.T, client kubernetes.Interface) {
		_, err := client.CoreV1().Secrets("a").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
			metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, test := range []struct {
			name         string
			sync         func(ctx context.Context, t *testing.T, r *Engine, use clients)
			fault, mixed int
		}{
			{"an unwrapped client", func(ctx context.Context, t *testing.T, _ *Engine, use clients) {
				write(ctx, t, use.plain)
			}, 1, 0},
			{"a wrapped client", func(ctx context.Context, t *testing.T, _ *Engine, use clients) {
				write(ctx, t, use.wrapped)
			}, 0, 0},
			{"both", func(ctx context.Context, t *testing.T, _ *Engine, use clients) {
				write(ctx, t, use.wrapped)
				write(ctx, t, use.plain)
			}, 0, 1},
			{"an unwrapped client, and notes by hand", func(ctx context.Context, t *testing.T, r *Engine, use clients) {
				write(ctx, t, use.plain)
				r.Wrote(ctx, secretKind, &metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "7"})
			}, 0, 0},
			{"requests to others", func(ctx context.Context, t *testing.T, _ *Engine, _ clients) {
				other := httptest.NewServer(http.NotFoundHandler())
				defer other.Close()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, other.URL, strings.NewReader("{}"))
				require.NoError(t, err)
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				_ = resp.Body.Close()
			}, 0, 0},
			{"none", func(context.Context, *testing.T, *Engine, clients) {}, 0, 0},
		} {
			t.Run(protocol+" "+test.name, func(t *testing.T) {
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Proto != protocol {
						t.Errorf("the request came by %s", req.Proto)
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1",` +
						`"metadata":{"name":"b","namespace":"a","resourceVersion":"7"}}`))
				}))
				server.EnableHTTP2 = protocol == "HTTP/2.0"
				server.StartTLS()
				defer server.Close()
				cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
				log := &lines{}
				r, err := New(cfg, Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"},
					Logger: log.logger()})
				require.NoError(t, err)
				mayWrite(r, 1<<61)
				q, inner := testQueue(t, r)
				own(r, testItem)
				use := clients{kubernetes.NewForConfigOrDie(cfg), kubernetes.NewForConfigOrDie(r.WrapConfig(cfg))}
				sync := q.Admit(func(ctx context.Context, _ cache.ObjectName) error {
					test.sync(ctx, t, r, use)
					return nil
				})
				q.Add(testItem)
				item, _ := q.Get()
				require.NoError(t, sync(t.Context(), item))
				q.Done(item)
				if inner.Len() != 0 {
					t.Error("the item is in the queue again")
				}
				for range 2 {
					q.queue.Controller().CheckClients()
				}
				log.wants(t, test.fault, "controller test", "rota.WrapConfig", "Rota.Wrote")
				log.wants(t, test.mixed, "right for reads")
				if err := r.faults.Err(); (err != nil) != (test.fault > 0) {
					t.Errorf("what makes the member not ready: %v", err)
				}
			})
		}
	}
}
