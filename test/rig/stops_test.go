package rig

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

// A process that was not told to stop, or not here, goes on, and what it writes is what it was. That one stops is seen
// in TestFence.
func TestStopsElsewhere(t *testing.T) {
	s := &stops{}
	var sent []string
	transport := s.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		text, err := io.ReadAll(r.Body)
		sent = append(sent, r.Method+" "+string(text))
		if r.Context().Err() == nil {
			t.Error("the context of a write was replaced although it was not stopped")
		}
		return &http.Response{Body: http.NoBody}, err
	}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for where, path := range map[string]string{
		"": "websites/a/status", "write b": "websites/a/status", "reconcile a": "websites/a/status",
		"write duty": "configmaps/another", "reconcile duty": "configmaps/duty",
	} {
		if where != "" {
			s.armed.Store(&where)
		}
		if s.at(AtWrite, "a") {
			t.Errorf("told %q, it stopped in a write of a", where)
		}
		req, err := http.NewRequestWithContext(ended, http.MethodPatch, "http://x/apis/web.example.com/v1/namespaces/n/"+path, strings.NewReader("text"))
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
	}
	if strings.Join(sent, "; ") != strings.TrimSuffix(strings.Repeat("PATCH text; ", 5), "; ") {
		t.Errorf("sent %q", sent)
	}
}
