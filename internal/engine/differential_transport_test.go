package engine

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/test/require"
)

// sentRequest is a request as a server gets it.
type sentRequest struct {
	Method, URL, Host, Body string
	Header                  http.Header
	Length                  int64
}

// httpCall is a request with its answer.
type httpCall struct {
	// Below is what follows an object's path.
	Method, Path, Below, Query, Body string

	Header    http.Header
	Reconcile bool // with the context of a reconcile
	Status    int  // of the answer; 0: it breaks
	Answer    string
}

func pickOne[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

var httpCalls = rapid.Custom(func(t *rapid.T) httpCall {
	c := httpCall{
		Method: pickOne(t, "method", "GET", "GET", "HEAD", "OPTIONS", "POST", "POST", "PUT", "PATCH", "DELETE", "TRACE"),
		Query: strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"dryRun=All", "fieldManager=a+b", "timeout=5s",
			"timeout=1ms", "timeout=0", "timeout=0s", "timeout=-3s", "timeout=none", "timeout=1m", "watch=true", "watch=1",
			"command=ls&command=-l", "x=%zz", "a;b", "limit=500", "labelSelector=a%3Db", "fieldSelector=metadata.name%3Db",
			"allowWatchBookmarks=true", "tailLines=", "x", "resourceVersion=0", "propagationPolicy=Orphan", "x=%2f&x=%20",
			"pretty"}), 0, 4).Draw(t, "query"), "&"),
		Body:      pickOne(t, "body", "", "{}", `{"metadata":{"name":"b","namespace":"a"}}`, "\x00\x01k8s", "[]"),
		Header:    http.Header{},
		Reconcile: rapid.Bool().Draw(t, "reconcile"),
		Status:    pickOne(t, "status", 200, 200, 201, 101, 304, 404, 409, 410, 422, 429, 500, 503, 504, 0),
		Answer: pickOne(t, "answer", "", "{}", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":504}`,
			`{"kind":"ConfigMap","metadata":{"name":"b","namespace":"a","uid":"1","resourceVersion":"7"}}`, "\x00\x01k8s", "plain"),
	}
	c.Path, c.Below = requestPath(t)
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		h := pickOne(t, "header", [2]string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
			[2]string{"Accept", "application/vnd.kubernetes.protobuf"}, [2]string{"Connection", "Upgrade"},
			[2]string{"Upgrade", "SPDY/3.1"}, [2]string{"X-Stream-Protocol-Version", "v5.channel.k8s.io"},
			[2]string{"Content-Type", "application/strategic-merge-patch+json"}, [2]string{"Impersonate-User", "a"},
			[2]string{"Authorization", "Bearer x"}, [2]string{"User-Agent", "test"}, [2]string{"X-Odd", ""})
		c.Header.Add(h[0], h[1])
	}
	return c
})

// requestPath returns a path of an API server, of an object, a collection or another thing, and what is below an object.
func requestPath(t *rapid.T) (path, below string) {
	if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
		return pickOne(t, "path", "/", "/healthz", "/version", "/apis", "/openapi/v3", "/api/v1", "//api/v1/pods",
			"/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews",
			"/api/v1/namespaces", "/api/v1/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/a/finalize"), ""
	}
	path = pickOne(t, "prefix", "", "", "/k8s/clusters/c-1") +
		pickOne(t, "group", "/api/v1", "/apis/apps/v1", "/apis/example.com/v1beta1") +
		pickOne(t, "namespace", "", "/namespaces/a", "/namespaces/a", "/namespaces/none") +
		pickOne(t, "resource", "/configmaps", "/secrets", "/pods", "/services", "/nodes", "/serviceaccounts")
	if rapid.Bool().Draw(t, "collection") {
		return path, ""
	}
	path += pickOne(t, "name", "/b", "/b", "/exec", "/https:web:443", "/a%20b")
	return path, pickOne(t, "below", "", "",
		"/status", "/scale", "/exec", "/attach", "/portforward", "/proxy", "/proxy/x/y", "/log", "/token", "/eviction",
		"/binding", "/finalize", "/ephemeralcontainers", "/status/")
}

// make sends the request through a transport. It returns what the server gets, and what the client does.
func (c httpCall) make(t *rapid.T, r *Engine, wrap func(http.RoundTripper) http.RoundTripper) (*sentRequest, string) {
	var sent *sentRequest
	server := roundTripper(func(req *http.Request) (*http.Response, error) {
		var body []byte
		if req.Body != nil {
			body, _ = io.ReadAll(req.Body)
		}
		sent = &sentRequest{req.Method, req.URL.String(), req.Host, string(body), maps.Clone(req.Header), req.ContentLength}
		if c.Status == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: c.Status, Header: http.Header{"X-From": {"server"}}, Request: req,
			ContentLength: int64(len(c.Answer)), Body: io.NopCloser(strings.NewReader(c.Answer))}, nil
	})
	ctx := t.Context()
	if c.Reconcile {
		ctx = r.withSlot(ctx, slotOf(r, types.NamespacedName(queueItem(1))))
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, "https://example.com"+c.Path+c.Below, bytes.NewReader([]byte(c.Body)))
	require.NoError(t, err)
	req.URL.RawQuery, req.Header = c.Query, c.Header.Clone()
	before := req.URL.String()
	resp, err := wrap(server).RoundTrip(req)
	if after := req.URL.String(); after != before || !maps.EqualFunc(req.Header, c.Header, slices.Equal) {
		t.Errorf("the caller's request was changed: %s %v, was %s %v", after, req.Header, before, c.Header)
	}
	if err != nil {
		return sent, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return sent, strings.Join([]string{strconv.Itoa(resp.StatusCode), resp.Header.Get("X-From"),
		strconv.FormatInt(resp.ContentLength, 10), string(body), strconv.FormatBool(err == nil)}, "\n")
}

// limited reports whether the member bounds the request: a write of a reconcile that changes an object.
func (c httpCall) limited() bool {
	reads := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	below, _, _ := strings.Cut(strings.TrimPrefix(c.Below, "/"), "/")
	changesNothing := slices.Contains([]string{"exec", "attach", "portforward", "proxy", "log", "token"}, below) ||
		strings.Contains(c.Path, "reviews")
	return c.Reconcile && !slices.Contains(reads, c.Method) && !changesNothing
}

// bounded returns the query of a request that the member bounds: all but the timeout stays, which is at most the
// longest of a write.
func bounded(query string) string {
	var rest []string
	first := true // of several, the first counts
	for _, part := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		if key != "timeout" {
			rest = append(rest, part)
			continue
		}
		if d, err := time.ParseDuration(value); first && err == nil && d > 0 && d <= 2*time.Second {
			return query
		}
		first = false
	}
	return strings.TrimPrefix(strings.Join(append(rest, "timeout=2000ms"), "&"), "&")
}

// The transport sends what it gets, and returns what the server answers. Two things are its own: writes of reconciles
// have a timeout, and say so if it was too short.
func TestRequestsAreStockRequests(t *testing.T) {
	r := testRota(t)
	r.log = logr.Discard()
	own(r, queueItem(1))
	mayWrite(r, time.Hour)
	stock := func(next http.RoundTripper) http.RoundTripper { return next }
	rapid.Check(t, func(t *rapid.T) {
		c := httpCalls.Draw(t, "call")
		want, answer := c.make(t, r, stock)
		got, gotAnswer := c.make(t, r, r.WrapTransport)
		if c.limited() {
			u, err := url.Parse(want.URL)
			require.NoError(t, err)
			u.RawQuery = bounded(c.Query)
			want.URL = u.String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the server gets (-stock +member):\n%s", diff)
		}
		if c.limited() && c.Status == http.StatusGatewayTimeout {
			return
		}
		if diff := cmp.Diff(answer, gotAnswer); diff != "" {
			t.Fatalf("the client gets (-stock +member):\n%s", diff)
		}
	})
}
