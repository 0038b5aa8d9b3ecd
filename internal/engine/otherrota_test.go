package engine

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A reconcile of one rota that uses another one's client is in none of the other's slots.
func TestAContextOfAnotherRota(t *testing.T) {
	hub, spoke := testRota(t), testRota(t)
	ctx := hub.withSlot(t.Context(), 3)
	if len(slotsFrom(ctx, hub)) != 1 || len(slotsFrom(ctx, spoke)) != 0 {
		t.Errorf("slots %v and %v, want one and none", slotsFrom(ctx, hub), slotsFrom(ctx, spoke))
	}
}

// What goes to an application or a container is not changed.
func TestProxiedRequestsAreNotChanged(t *testing.T) {
	r := testRota(t)
	mayWrite(r, time.Minute)
	for _, path := range []string{"services/http:db:9200/proxy/_reindex?wait=true", "pods/p/exec?command=backup"} {
		req, err := http.NewRequestWithContext(r.withSlot(t.Context(), 3), http.MethodPost,
			"https://example.com/api/v1/namespaces/a/"+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		w := r.WrapTransport(roundTripper(func(sent *http.Request) (*http.Response, error) {
			if _, limited := sent.Context().Deadline(); limited || sent.URL.Query().Has("timeout") {
				t.Errorf("sent %s, limited: %t", sent.URL, limited)
			}
			return status(http.StatusOK), nil
		}))
		resp, err := w.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}
