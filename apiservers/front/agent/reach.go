package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
)

// Reach sends each static API server a GET /readyz, as the proxy will, and returns an error for those that do not
// answer that they are ready, or that are the front itself. It reads the front's certificates on this machine. It takes
// at most limit for each server.
func Reach(ctx context.Context, f *front.Front, limit time.Duration) error {
	if err := f.Circle(ownAddresses()); err != nil {
		return err
	}
	config, err := checkConfig(f)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: limit, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for _, address := range f.Static {
		if err := ready(ctx, client, address); err != nil {
			return fmt.Errorf("static API server %s: %w", address, err)
		}
	}
	return nil
}

// checkConfig is the TLS configuration of the proxy's checks.
func checkConfig(f *front.Front) (*tls.Config, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificate authorities: %s has no certificate in PEM", f.CA)
	}
	if f.Client != "" {
		cert, err := tls.LoadX509KeyPair(f.Client, f.Client)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s: it must hold certificate and key in PEM: %w", f.Client, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

func ready(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	_ = response.Body.Close()
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("it answers %s to an unauthenticated GET /readyz: allow it, as the ClusterRole "+
			"system:public-info-viewer does, or name a client's certificate for the checks", response.Status)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("it is not ready: GET /readyz answers %s: %s", response.Status, failing(string(body)))
	}
	return nil
}

// failing returns the lines of a health report that report failures, on one line.
func failing(report string) string {
	var bad []string
	for line := range strings.Lines(report) {
		if strings.HasPrefix(line, "[-]") {
			bad = append(bad, strings.TrimSpace(line))
		}
	}
	if len(bad) == 0 {
		return strings.Join(strings.Fields(report), " ")
	}
	return strings.Join(bad, ", ")
}

var dialer = net.Dialer{Timeout: time.Second}
