package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/elapsed"
)

// Options configure a Client: where the dispatchers are and how to reach them.
type Options struct {
	// URLs are the URLs of dispatchers, or of a Service in front of them. There must be at least one. Any dispatcher can
	// handle any request, so the client uses another URL when one does not answer.
	URLs []string
	// TokenFile is a file with the bearer token. It is reread when its content is some seconds old, and when a dispatcher
	// refuses the token. Without it, no token is sent.
	TokenFile string
	// CAFile is a file with the certificate authorities in PEM. It is reread when a connection is opened. Default: the
	// system's authorities.
	CAFile string
	// HTTP replaces the HTTP client. CAFile must then be empty. Its Timeout must be 0, since polls and streams wait.
	HTTP *http.Client
	// Logger logs failed attempts and the worker's keys. By default nothing is logged.
	Logger logr.Logger
}

// Client sends requests to dispatchers. Its methods may be called concurrently. They retry requests as described in the
// package comment until ctx ends, so give ctx a deadline. The error is a *Problem if a dispatcher has answered.
type Client struct {
	urls  []string
	at    atomic.Uint64 // index of the current URL
	http  *http.Client
	token tokenReader
	log   logr.Logger
	clock *elapsed.Clock
}

// New returns a client. It does not open a connection.
func New(o Options) (*Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("dispatch client: no URLs: name at least one")
	}
	c := &Client{http: o.HTTP, log: o.Logger, clock: elapsed.New()}
	c.token.file = o.TokenFile
	for _, raw := range o.URLs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("dispatch client: %w", err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("dispatch client: URL %q: it must be like https://HOST[:PORT][/PATH]", raw)
		}
		c.urls = append(c.urls, strings.TrimSuffix(u.String(), "/"))
	}
	if c.log.GetSink() == nil {
		c.log = logr.Discard()
	}
	if o.HTTP == nil {
		client, err := newHTTP(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("dispatch client: %w", err)
		}
		c.http = client
	} else if o.CAFile != "" || o.HTTP.Timeout != 0 {
		return nil, errors.New("dispatch client: with HTTP, CAFile must be empty and HTTP.Timeout 0")
	}
	return c, nil
}

// requestTimeout is the longest time for an answer to a request that does not wait for keys.
const requestTimeout = 10 * time.Second

// maxAnswer is the largest answer, in bytes.
const maxAnswer = 16 << 20

// call sends a request until it gets an answer, and returns when it was sent. Each attempt may take timeout, unless
// that is 0. If out is nil, no answer is decoded. When ctx ends, the current attempt is aborted.
func (c *Client) call(ctx context.Context, path string, timeout time.Duration, in, out any) (time.Duration, error) {
	var sent time.Duration
	var err error
	b := &backoff{}
	for {
		sent, err = c.once(ctx, path, timeout, in, out)
		if err == nil || ctx.Err() != nil {
			break
		}
		var p *Problem
		if errors.As(err, &p) && !p.temporary() {
			break
		}
		level := 1
		if b.delay >= time.Second { // it has failed several times
			level = 0
		}
		c.log.V(level).Info("A request failed; trying again", "path", path, "error", err.Error())
		if !b.wait(ctx, err) {
			break
		}
	}
	switch {
	case err == nil:
		return sent, nil
	case ctx.Err() == nil:
		return 0, fmt.Errorf("%s: %w", path, err)
	default:
		return 0, fmt.Errorf("%s: %w; last error: %w", path, context.Cause(ctx), err)
	}
}

// once sends a request once, and a second time if the token file has a new token.
func (c *Client) once(ctx context.Context, path string, timeout time.Duration, in, out any) (time.Duration, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, sent, err := c.send(ctx, path, in)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if out == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProblem)) // lets the connection be reused
		return sent, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	return sent, nil
}

// send sends a request. It returns a successful answer, and when the request was sent.
func (c *Client) send(ctx context.Context, path string, in any) (*http.Response, time.Duration, error) {
	method, body := http.MethodGet, []byte(nil)
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, 0, err
		}
		method = http.MethodPost
	}
	for refused := ""; ; {
		token, err := c.token.get(refused)
		if err != nil {
			return nil, 0, err
		}
		at := c.at.Load()
		base := c.urls[at%uint64(len(c.urls))]
		req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
		if err != nil {
			return nil, 0, err
		}
		if in != nil {
			req.Header.Set("Content-Type", wire.TypeJSON)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		sent := c.clock.Late()
		resp, err := c.http.Do(req)
		if err != nil {
			c.at.CompareAndSwap(at, at+1)
			return nil, 0, err
		}
		if resp.StatusCode < 300 {
			return resp, sent, nil
		}
		problem := problemOf(resp)
		_ = resp.Body.Close()
		if problem.Status == http.StatusServiceUnavailable {
			c.at.CompareAndSwap(at, at+1)
		}
		if problem.Is(ErrUnauthenticated) && token != "" && refused == "" {
			if again, err := c.token.get(token); err == nil && again != token {
				refused = token
				continue
			}
		}
		return nil, 0, problem
	}
}

// Stats returns the state of all dispatchers.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var out Stats
	_, err := c.call(ctx, wire.PathStats, requestTimeout, nil, &out)
	return out, err
}
