package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNotServed is wrapped by errors of requests that the other member has not served, so that they may be sent again.
var ErrNotServed = errors.New("not served")

// Client sends requests to members. Its methods may be called concurrently.
type Client struct{ transport *http.Transport }

// dialTimeout bounds a connection's dial and its handshake, each.
const dialTimeout = 2 * time.Second

// NewClient returns a client. from returns the ID of this member.
func NewClient(key *Key, d *Directory, from func() string) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			id, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			entry, err := d.Lookup(ctx, id)
			if err != nil {
				return nil, err
			}
			if entry.Address == "" {
				return nil, fmt.Errorf("member %s publishes no address: set Options.Address on all members", id)
			}
			return dialer.DialContext(ctx, network, entry.Address)
		},
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return key.certificate(from())
			},
			InsecureSkipVerify: true, //nolint:gosec // there is no authority: VerifyConnection compares the key
			VerifyConnection: func(s tls.ConnectionState) error {
				return d.check(context.Background(), s.ServerName, &s)
			},
		},
		TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true,
	}}
}

// Send sends a request to a member's route. The request's URL needs a path only.
func (c *Client) Send(req *http.Request, id, route string) (*http.Response, error) {
	var sent atomic.Bool
	req = req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}))
	req.URL.Scheme, req.URL.Host = "https", id
	req.Header.Set(headerRoute, route)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		// With TLS 1.3 the server checks this member's key after the request was written, and ends the connection by an
		// alert.
		refused := (*net.OpError)(nil)
		if !sent.Load() || errors.As(err, &refused) && refused.Op == "remote error" {
			err = fmt.Errorf("%w: %w", ErrNotServed, err)
		}
		return nil, err
	}
	if resp.Header.Get(headerRefused) == "" {
		return resp, nil
	}
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	return nil, fmt.Errorf("%w: member %s: %s", ErrNotServed, id, strings.TrimSpace(string(why)))
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
