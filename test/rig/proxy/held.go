package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Held is a request that the proxy keeps, as a network might. Its client waits for an answer and gets none.
type Held struct {
	match func(*http.Request) bool
	proxy *Proxy

	arrived chan struct{}
	request *http.Request
	body    []byte
}

// Hold keeps the next request that matches. match is called by many goroutines.
func (p *Proxy) Hold(match func(*http.Request) bool) *Held {
	h := &Held{match: match, proxy: p, arrived: make(chan struct{})}
	p.mu.Lock()
	p.held = append(p.held, h)
	p.mu.Unlock()
	return h
}

// Arrived is closed when there is one.
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Release sends the request to the API server, whether or not its client is still there, and returns the status code of
// the answer. It must be called once at most.
func (h *Held) Release(ctx context.Context) (int, error) {
	select {
	case <-h.arrived:
	default:
		return 0, errors.New("release a request: none was held")
	}
	req := h.request.Clone(ctx)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(h.body)), int64(len(h.body))
	u := h.proxy.upstream()
	req.URL.Scheme, req.URL.Host, req.Host, req.RequestURI = u.url.Scheme, u.url.Host, u.url.Host, ""
	resp, err := u.transport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("release %s %s: %w", req.Method, req.URL.Path, err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// take keeps the request if somebody wants it.
func (p *Proxy) take(r *http.Request) bool {
	p.mu.Lock()
	var h *Held
	for i, candidate := range p.held {
		if candidate.match(r) {
			h = candidate
			p.held = append(p.held[:i:i], p.held[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if h == nil {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return true // its client is gone
	}
	h.request, h.body = r, body
	close(h.arrived)
	<-r.Context().Done()
	return true
}
