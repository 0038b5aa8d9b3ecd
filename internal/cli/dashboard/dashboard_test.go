package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/test/require"
)

const evil = `<img src=x onerror=alert(1)>`

func sample() *view.Rota {
	left, objects := 9.5, 120
	return &view.Rota{
		Namespace: "operators", Name: "website", At: time.Now(), Epoch: 1763712345071, Slots: 256, Key: "Name",
		Members: []view.Member{{
			ID: "web-1-x7k2p", Pod: "web-1", Build: evil, Weight: 1, Owned: 256, Objects: &objects, Left: &left, Lease: 15,
			State: view.Working,
		}},
		Runs:     []view.Run{{First: 0, Last: 255, Owner: "web-1-x7k2p"}},
		Problems: []view.Problem{{Severity: view.Warn, What: "Example", Message: evil}},
		Warnings: []view.Warning{{At: time.Now(), Member: "web-1", About: "web-0-abcde", Reason: "Expelled", Message: evil},
			{At: time.Now(), Member: "web-1", Reason: "Lapsed", Message: evil, Over: evil}},
		ShardedKinds: []string{"Website.web.example.com"},
	}
}

// source tells what its channel brings.
type source struct {
	tell    chan func(func(*view.Rota, error))
	watches chan bool // true: one began; false: one ended
}

func newSource() *source {
	return &source{tell: make(chan func(func(*view.Rota, error))), watches: make(chan bool, 16)}
}

func (s *source) watch(ctx context.Context, tell func(*view.Rota, error)) error {
	s.watches <- true
	defer func() { s.watches <- false }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-s.tell:
			f(tell)
		}
	}
}

func serve(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(New(o))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request and returns the answer.
func ask(t *testing.T, method, url string, change func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header, string(body)
}

// stream reads server-sent events.
type stream struct{ lines *bufio.Scanner }

func open(t *testing.T, ctx context.Context, url string) *stream { //nolint:revive // of two contexts t's is the longer one
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, got)
	}
	s := &stream{bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, 1<<20)
	return s
}

// next returns the next event but signs of life.
func (s *stream) next(t *testing.T) (string, message) {
	t.Helper()
	event := ""
	for s.lines.Scan() {
		if name, ok := strings.CutPrefix(s.lines.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(s.lines.Text(), "data: "); ok && event != "alive" {
			var m message
			require.NoError(t, json.Unmarshal([]byte(data), &m))
			return event, m
		}
	}
	t.Fatalf("the stream has ended: %v", s.lines.Err())
	return "", message{}
}

// TestEvents: pages get each state, those that come later the last one, and what is lost is said together with the age
// of what is known. The watch runs while a page is open.
func TestEvents(t *testing.T) {
	src := newSource()
	server := serve(t, Options{Watch: src.watch})
	select {
	case <-src.watches:
		t.Fatal("it watches although no page is open")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := open(t, ctx, server.URL)
	if !<-src.watches {
		t.Fatal("a watch ended before it began")
	}
	rota := sample()
	src.tell <- func(tell func(*view.Rota, error)) { tell(rota, nil) }
	event, m := first.next(t)
	var got view.Rota
	require.NoError(t, json.Unmarshal(m.Rota, &got))
	want := *rota
	got.At, want.At = want.At.Round(0), want.At.Round(0)
	if diff := cmp.Diff(want, got); event != "rota" || m.Age == nil || diff != "" {
		t.Errorf("event %s, age %v, %s", event, m.Age, diff)
	}
	src.tell <- func(tell func(*view.Rota, error)) { tell(nil, errors.New("no route to host")) }
	if event, m := first.next(t); event != "lost" || m.Error != "no route to host" || m.Rota != nil || m.Age == nil {
		t.Errorf("event %s: %+v", event, m)
	}
	second := open(t, ctx, server.URL)
	if event, m := second.next(t); event != "lost" || m.Error == "" || m.Rota == nil || m.Age == nil {
		t.Errorf("a page that was opened while the rota cannot be read gets %s: %+v", event, m)
	}
	src.tell <- func(tell func(*view.Rota, error)) { tell(rota, nil) }
	for _, s := range []*stream{first, second} {
		if event, m := s.next(t); event != "rota" || m.Error != "" {
			t.Errorf("event %s: %+v", event, m)
		}
	}
	cancel()
	if <-src.watches {
		t.Fatal("a second watch began while the first one ran")
	}
	// What was known then says nothing to a page that is opened later.
	third := open(t, t.Context(), server.URL)
	if !<-src.watches {
		t.Fatal("no watch for the third page")
	}
	src.tell <- func(tell func(*view.Rota, error)) { tell(nil, errors.New("still none")) }
	if event, m := third.next(t); event != "lost" || m.Rota != nil || m.Age != nil {
		t.Errorf("event %s: %+v", event, m)
	}
}

func TestWatchEnds(t *testing.T) {
	server := serve(t, Options{Watch: func(context.Context, func(*view.Rota, error)) error {
		return errors.New("certificate signed by unknown authority")
	}})
	event, m := open(t, t.Context(), server.URL).next(t)
	if event != "lost" || !strings.Contains(m.Error, "unknown authority") {
		t.Errorf("event %s: %+v", event, m)
	}
}

func TestWho(t *testing.T) {
	asked := ""
	server := serve(t, Options{Who: func(_ context.Context, kind, namespace, name string) (any, error) {
		asked = fmt.Sprintf("%q %q %q", kind, namespace, name)
		switch kind {
		case "odd":
			return nil, QuestionError{errors.New("no kind odd")}
		case "gone":
			return nil, errors.New("the API server does not answer")
		}
		return map[string]any{"member": "web-1", "name": name}, nil
	}})
	for _, c := range []struct {
		query string
		code  int
		want  string
	}{
		{"kind=website&namespace=shop&name=a", 200, `"member":"web-1"`},
		{"kind=odd&name=a", 400, "no kind odd"},
		{"kind=gone&name=a", 502, "does not answer"},
		{"kind=website", 400, "the kind and the name"},
		{"name=a", 400, "the kind and the name"},
		{"kind=website&name=" + strings.Repeat("a", 600), 400, "name is too long"},
		{"kind=website&name=%3Cimg%20src=x%20onerror=alert(1)%3E", 200, `\u003cimg src=x`},
	} {
		asked = ""
		code, header, body := ask(t, "GET", server.URL+"/who?"+c.query, nil)
		if code != c.code || !strings.Contains(body, c.want) || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
		if c.query == "kind=website&namespace=shop&name=a" && asked != `"website" "shop" "a"` {
			t.Errorf("asked %s", asked)
		}
	}
	if code, _, _ := ask(t, "GET", serve(t, Options{}).URL+"/who?kind=a&name=b", nil); code != 404 {
		t.Errorf("without a search: %d", code)
	}
}

type replicas struct{ did []string }

func (r *replicas) Add(context.Context) (string, error) {
	r.did = append(r.did, "add")
	return "web-9", nil
}

func (r *replicas) Stop(_ context.Context, pod string) error {
	r.did = append(r.did, "stop "+pod)
	return nil
}

func (r *replicas) Kill(_ context.Context, pod string) error {
	return fmt.Errorf("%s is the last replica", pod)
}

// TestButtons: only the page can press them.
func TestButtons(t *testing.T) {
	r := &replicas{}
	server := serve(t, Options{Replicas: r})
	_, _, body := ask(t, "GET", server.URL+"/config", nil)
	var config struct {
		Replicas bool
		Token    string
	}
	if err := json.Unmarshal([]byte(body), &config); err != nil || !config.Replicas || len(config.Token) < 26 {
		t.Fatalf("%s: %v", body, err)
	}
	with := func(headers ...string) func(*http.Request) {
		return func(req *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
		}
	}
	for _, c := range []struct {
		name, method, path string
		headers            []string
		code               int
		want               string
	}{
		{"no token", "POST", "/replicas/add", nil, 403, "reload it"},
		{"another token", "POST", "/replicas/add", []string{tokenHeader, "x"}, 403, "reload it"},
		{"another origin", "POST", "/replicas/add", []string{tokenHeader, config.Token, "Origin", "https://example.com"}, 403, ""},
		{"another site", "POST", "/replicas/add", []string{tokenHeader, config.Token, "Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"another port", "POST", "/replicas/add", []string{tokenHeader, config.Token, "Sec-Fetch-Site", "same-site"}, 403, ""},
		{"a link", "GET", "/replicas/add", []string{tokenHeader, config.Token}, 405, ""},
		{"add", "POST", "/replicas/add", []string{tokenHeader, config.Token, "Sec-Fetch-Site", "same-origin"}, 200, "web-9"},
		{"stop", "POST", "/replicas/stop?pod=web-1", []string{tokenHeader, config.Token}, 200, "web-1"},
		{"kill", "POST", "/replicas/kill?pod=web-2", []string{tokenHeader, config.Token}, 409, "web-2 is the last replica"},
	} {
		code, _, body := ask(t, c.method, server.URL+c.path, with(c.headers...))
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.name, code, body)
		}
	}
	require.Equal(t, "what it did", []string{"add", "stop web-1"}, r.did)
	quiet := serve(t, Options{})
	if _, _, body := ask(t, "GET", quiet.URL+"/config", nil); strings.Contains(body, "token") {
		t.Errorf("without buttons there is a token: %s", body)
	}
	if code, _, _ := ask(t, "POST", quiet.URL+"/replicas/add", nil); code != 404 && code != 405 {
		t.Errorf("without buttons: %d", code)
	}
}

// TestGuard: what a page of another site can do with this address.
func TestGuard(t *testing.T) {
	server := serve(t, Options{Hosts: []string{"ops.example.com"}})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "localhost:1": 200, "LOCALHOST.": 200, "10.1.2.3": 200,
		"ops.example.com:7": 200, "example.com": 421, "localhost.example.com": 421, "127.0.0.1.example.com:80": 421,
	} {
		code, _, _ := ask(t, "GET", server.URL+"/", func(r *http.Request) { r.Host = host })
		if code != want {
			t.Errorf("Host %s: %d, want %d", host, code, want)
		}
	}
	for _, c := range []struct {
		path, site string
		want       int
	}{
		{"/", "cross-site", 200}, {"/", "none", 200}, {"/config", "same-origin", 200}, {"/config", "none", 200},
		{"/config", "cross-site", 403}, {"/config", "same-site", 403}, {"/app.js", "cross-site", 403},
	} {
		code, _, _ := ask(t, "GET", server.URL+c.path, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", c.site) })
		if code != c.want {
			t.Errorf("%s from %s: %d, want %d", c.path, c.site, code, c.want)
		}
	}
	for path, want := range map[string]int{"/nothing": 404, "/page/index.html": 404, "/index.html": 404, "/../go.mod": 404} {
		if code, _, _ := ask(t, "GET", server.URL+path, nil); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
}

var (
	elsewhere = regexp.MustCompile(`https?://|//[a-z]|@import|url\((?:"|')?[a-z]|\bdata:`)
	inline    = regexp.MustCompile(`(?i)<script(?:>| [^>]*>)\s*[^<\s]|<style|\son[a-z]+=|\sstyle=|javascript:`)
	risky     = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`)
	comments  = regexp.MustCompile(`(?m)^\s*//.*$`)
)

// TestPage: each file has the headers, and nothing in them comes from elsewhere or becomes HTML.
func TestPage(t *testing.T) {
	server := serve(t, Options{})
	names := append(pageFiles(), "")
	for _, name := range names {
		if name == "index.html" {
			continue
		}
		code, header, body := ask(t, "GET", server.URL+"/"+name, nil)
		if code != 200 || header.Get("Content-Type") == "" || body == "" {
			t.Errorf("%s: %d, %s", name, code, header.Get("Content-Type"))
		}
		for key, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := header.Get(key); got != want {
				t.Errorf("%s: %s: %s", name, key, got)
			}
		}
		text := comments.ReplaceAllString(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "")
		for _, bad := range []*regexp.Regexp{elsewhere, inline, risky} {
			if found := bad.FindString(text); found != "" {
				t.Errorf("%s has %q", name, found)
			}
		}
	}
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	for _, bad := range []string{"unsafe", "*", "data:", "http"} {
		if strings.Contains(policy, bad) {
			t.Errorf("the policy has %s", bad)
		}
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct{ address, err string }{
		{":8080", "give a host"}, {"127.0.0.1", "HOST:PORT"}, {"nonsense:port:1", "HOST:PORT"}, {"127.0.0.1:99999", "listen on"},
	} {
		_, err := Listen(t.Context(), c.address, Options{})
		require.ErrorSays(t, err, c.err)
	}
	src := newSource()
	s, err := Listen(t.Context(), "localhost:0", Options{Watch: src.watch})
	require.NoError(t, err)
	if s.Exposed {
		t.Error("localhost is said to be exposed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	if code, _, _ := ask(t, "GET", s.URL(), nil); code != 200 {
		t.Errorf("%s: %d", s.URL(), code)
	}
	open(t, t.Context(), strings.TrimSuffix(s.URL(), "/")) // a page that is open keeps nothing from ending
	<-src.watches
	cancel()
	require.NoError(t, <-done)
	if <-src.watches {
		t.Error("the watch goes on")
	}
	all, err := Listen(t.Context(), "0.0.0.0:0", Options{})
	require.NoError(t, err)
	defer all.server.Close()
	if !all.Exposed || !strings.HasPrefix(all.URL(), "http://localhost:") {
		t.Errorf("%v, %s", all.Exposed, all.URL())
	}
}
