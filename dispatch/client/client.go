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

// Options say where the dispatchers are, and how to reach them.
type Options struct {
	// URLs are those of dispatchers, or one of a Service in front of them. Any dispatcher will do for any request: another
	// URL is used when one does not answer. There must be one.
	URLs []string
	// TokenFile has the bearer token. It is read again when it is some seconds old, and when a dispatcher refuses the
	// token. Empty: none is sent.
	TokenFile string
	// CAFile has the certificates of the authorities, in PEM. It is read again when a connection is opened. Empty: those
	// of the system.
	CAFile string
	// HTTP replaces the HTTP client. CAFile must be empty then. Its Timeout must be 0: polls and streams wait.
	HTTP *http.Client
	// Logger tells of attempts that failed, and of the worker's keys. The default discards it.
	Logger logr.Logger
}

// Client sends requests to dispatchers. Its methods may be called concurrently. They send a request again as the
// package's comment says, until ctx ends. So give ctx a deadline. An error is a *Problem if a dispatcher has answered.
type Client struct {
	urls  []string
	at    atomic.Uint64 // which of urls is used
	http  *http.Client
	token tokenReader
	log   logr.Logger
	clock *elapsed.Clock
}

// New returns a client. It opens no connection yet.
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

// requestTimeout is how long an answer may take that a dispatcher need not wait for.
const requestTimeout = 10 * time.Second

// maxAnswer is how large an answer may be, in bytes.
const maxAnswer = 16 << 20

// call sends a request until there is an answer, and returns when it was sent. An answer may take timeout, unless that
// is 0. With out nil, none is expected. ctx ends what is under way.
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
		if b.delay >= time.Second { // it has failed some times
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

// once sends a request once, and again if it has a new token.
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
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProblem)) // the connection can be used again
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

// send sends a request and returns an answer without an error, and when it was sent.
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
