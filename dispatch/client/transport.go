package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// idleConnections is how many connections are kept open, so that workers with short tasks do not open one for each
// request.
const idleConnections = 128

// newHTTP returns the default HTTP client.
func newHTTP(caFile string) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second} // polls are silent
	if caFile != "" {
		authority := &caReader{file: caFile}
		if _, err := authority.pool(); err != nil {
			return nil, err
		}
		t.DialTLSContext = authority.dial
	}
	return &http.Client{
		Transport: t,
		// The token must only be sent to dispatchers.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// caReader trusts the authorities in a file that may be replaced.
type caReader struct {
	file string

	mu   sync.Mutex
	last []byte
	read *x509.CertPool
}

// pool returns the file's current content. If the file cannot be read any more, it returns the previous content.
func (c *caReader) pool() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pem, err := os.ReadFile(c.file)
	if err == nil && c.read != nil && bytes.Equal(pem, c.last) {
		return c.read, nil
	}
	if err == nil {
		pool := x509.NewCertPool()
		if pool.AppendCertsFromPEM(pem) {
			c.last, c.read = pem, pool
			return pool, nil
		}
		err = fmt.Errorf("%s: no certificates in PEM", c.file)
	}
	if c.read != nil {
		return c.read, nil
	}
	return nil, fmt.Errorf("CA file: %w", err)
}

func (c *caReader) dial(ctx context.Context, network, address string) (net.Conn, error) {
	pool, err := c.pool()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second},
		Config: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: host, NextProtos: []string{"h2", "http/1.1"},
		},
	}
	return dialer.DialContext(ctx, network, address)
}

// tokenAge is the age at which a token is read again.
const tokenAge = 10 * time.Second

// tokenReader reads the bearer token. The kubelet replaces the files of projected tokens before they expire.
type tokenReader struct {
	file string

	mu    sync.Mutex
	token string
	at    time.Time
}

// get returns the token, or "" without a file. refused is a token that a dispatcher has refused, if not empty. The file
// is then read in any case.
func (r *tokenReader) get(refused string) (string, error) {
	if r.file == "" {
		return "", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token != "" && time.Since(r.at) < tokenAge && refused != r.token {
		return r.token, nil
	}
	raw, err := os.ReadFile(r.file)
	token := strings.TrimSpace(string(raw))
	switch {
	case err == nil && token != "":
		r.token, r.at = token, time.Now()
	case r.token != "": // keep the last one: the file is being replaced
	case err == nil:
		return "", fmt.Errorf("token file %s is empty", r.file)
	default:
		return "", fmt.Errorf("token file: %w", err)
	}
	return r.token, nil
}
