package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A probe says once whether a server is ready: nil, or why not.
type probe func(ctx context.Context) error

// httpProbe asks for each url and wants 200 of all.
func httpProbe(url string, tlsConfig *tls.Config, more ...string) probe {
	client := &http.Client{
		Timeout: 5 * time.Second,
		// A restarted server must not be judged by a connection to its predecessor.
		Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		for _, u := range append([]string{url}, more...) {
			if err := get(ctx, client, u); err != nil {
				return err
			}
		}
		return nil
	}
}

// apiProbe asks as an administrator. By default it wants /readyz, which covers the bootstrap of RBAC, and the namespace
// "default", which it does not cover.
func (l *layout) apiProbe(base string, paths ...string) probe {
	if len(paths) == 0 {
		paths = []string{"/readyz", "/api/v1/namespaces/default"}
	}
	for i := range paths {
		paths[i] = base + paths[i]
	}
	roots := x509.NewCertPool()
	roots.AddCert(l.pki.caCert)
	config := &tls.Config{RootCAs: roots}
	certPEM, keyPEM, err := l.pki.Client("rota-kube-supervisor", "system:masters")
	if err == nil {
		var cert tls.Certificate
		cert, err = tls.X509KeyPair(certPEM, keyPEM)
		config.Certificates = []tls.Certificate{cert}
	}
	if err != nil {
		return func(context.Context) error { return err }
	}
	return httpProbe(paths[0], config, paths[1:]...)
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
