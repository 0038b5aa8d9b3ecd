package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rota-dev/rota/internal/cable"
)

// lagging returns a kubeconfig of an API server whose watches are late by lag. Reads and writes are not.
func lagging(t *testing.T, cfg *rest.Config, lag time.Duration) string {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(resp *http.Response) error {
			if watch := resp.Request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
				// Of Leases and of the table the members hear in time: it is their informers that are late.
				if strings.HasSuffix(resp.Request.URL.Path, "/pods") || strings.HasSuffix(resp.Request.URL.Path, "/configmaps") && resp.Request.URL.Query().Get("fieldSelector") == "" {
					resp.Body = cable.Late(resp.Body, lag)
				}
			}
			return nil
		},
	})
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"lagging": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"lagging": {Cluster: "lagging"}},
		CurrentContext: "lagging",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
