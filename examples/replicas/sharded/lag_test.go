package main

import (
	"io"
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
					resp.Body = delay(resp.Body, lag)
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

// late is a body whose bytes come late, in order.
type late struct {
	*io.PipeReader
	body io.Closer
}

func (l late) Close() error {
	_ = l.PipeReader.Close()
	return l.body.Close()
}

func delay(body io.ReadCloser, lag time.Duration) io.ReadCloser {
	type chunk struct {
		data []byte
		due  time.Time
	}
	r, w := io.Pipe()
	chunks := make(chan chunk, 1<<16)
	go func() {
		defer close(chunks)
		for {
			data := make([]byte, 1<<16)
			n, err := body.Read(data)
			if n > 0 {
				chunks <- chunk{data[:n], time.Now().Add(lag)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer w.Close()
		for c := range chunks {
			<-time.After(time.Until(c.due))
			if _, err := w.Write(c.data); err != nil {
				for range chunks { // until the body is closed
				}
				return
			}
		}
	}()
	return late{r, body}
}
