package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// told is a notice that a destination got, or has to get.
type told struct {
	destination, event, object, reason string
	nth                                int // of those alike
}

// receiver is both destinations.
type receiver struct {
	t       *testing.T
	address string
	url     string
	server  *http.Server

	mu         sync.Mutex
	got        []string       // what is told, in order, without doubles
	count      map[string]int // by ID
	what       map[string]told
	all        int
	wait       time.Duration
	retryAfter string
	lose       int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, address: "127.0.0.1:0", count: map[string]int{}, what: map[string]told{}}
	r.up(t)
	t.Cleanup(r.down)
	return r
}

func (r *receiver) up(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	r.url = "http://" + r.address
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
}

// down ends the server when it has answered what it has taken.
func (r *receiver) down() { _ = r.server.Shutdown(r.t.Context()); _ = r.server.Close() }

func (r *receiver) with(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *receiver) slow(d time.Duration)     { r.with(func() { r.wait = d }) }
func (r *receiver) refuse(retryAfter string) { r.with(func() { r.retryAfter = retryAfter }) }
func (r *receiver) accept()                  { r.refuse("") }

// loseAnswers takes the next n notices, and ends their connections without an answer.
func (r *receiver) loseAnswers(n int) { r.with(func() { r.lose = n }) }

func (r *receiver) requests() (n int) {
	r.with(func() { n = r.all })
	return n
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	var id string
	var what told
	if request.URL.Path == "/slack" {
		id, what = readSlack(r.t, body)
	} else {
		id, what = readEvent(r.t, request.Header, body)
	}
	r.mu.Lock()
	r.all++
	wait, retryAfter, lose := r.wait, r.retryAfter, false
	if retryAfter == "" {
		if r.count[id]++; r.count[id] == 1 {
			r.got = append(r.got, id)
			r.what[id] = what
			if r.lose > 0 {
				r.lose--
				lose = true
			}
		}
	}
	r.mu.Unlock()
	switch {
	case retryAfter != "":
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
	case lose:
		panic(http.ErrAbortHandler)
	default:
		time.Sleep(wait) // a slow receiver
	}
}

func readEvent(t *testing.T, h http.Header, body []byte) (string, told) {
	key, err := notice.ParseSecret(secret)
	if err != nil {
		t.Error(err)
	}
	seconds, _ := strconv.ParseInt(h.Get(notice.TimestampHeader), 10, 64)
	if want := notice.Sign(key, h.Get(notice.IDHeader), time.Unix(seconds, 0), body); h.Get(notice.SignatureHeader) != want {
		t.Errorf("signature %q, want %q", h.Get(notice.SignatureHeader), want)
	}
	var e struct {
		ID, Type string
		Data     struct {
			Object  notice.Object
			Reason  string
			Day     string // of a digest
			Failing int
		}
	}
	if err := json.Unmarshal(body, &e); err != nil || e.ID != h.Get(notice.IDHeader) {
		t.Errorf("event %s with the ID %q: %v", body, h.Get(notice.IDHeader), err)
	}
	what := told{
		destination: "audit", event: e.Type[strings.LastIndex(e.Type, ".")+1:], object: e.Data.Object.String(), reason: e.Data.Reason,
	}
	if what.event == string(notice.DigestType) {
		what.object, what.reason = e.Data.Day, strconv.Itoa(e.Data.Failing)
	}
	return "audit " + e.ID, what
}

var slackText = regexp.MustCompile(`^\*(\w+)\*: (\w+ [^:\n]+)(?:: (\w+))?`)

// readSlack takes the text for the ID: it has the time in it.
func readSlack(t *testing.T, body []byte) (string, told) {
	var payload struct{ Text string }
	if err := json.Unmarshal(body, &payload); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	m := slackText.FindStringSubmatch(payload.Text)
	if m == nil {
		t.Errorf("%s: not what was agreed on", body)
		return string(body), told{}
	}
	return "ops " + payload.Text, told{destination: "ops", event: m[1], object: m[2], reason: m[3]}
}

// doubles describes the notices that came more than once, once for each repetition.
func (r *receiver) doubles() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for id, n := range r.count {
		for range n - 1 {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// repeated waits until n notices have been repeated, for a minute at most: they wait for a backoff.
func (r *receiver) repeated(n int) {
	for deadline := time.Now().Add(time.Minute); len(r.doubles()) < n && time.Now().Before(deadline); {
		<-time.After(20 * time.Millisecond)
	}
}

// told waits until everything has come that has to, and fails if anything else has.
func (r *receiver) told(w *world) {
	r.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; <-time.After(20 * time.Millisecond) {
		missing, more := r.compare(w)
		if len(missing) == 0 && len(more) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("lost:\n%s\nnot to be told:\n%s", strings.Join(missing, "\n"), strings.Join(more, "\n"))
		}
	}
}

func (r *receiver) compare(w *world) (missing, more []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	have := map[told]bool{}
	for _, id := range r.got {
		what := r.what[id]
		for have[what] {
			what.nth++
		}
		have[what] = true
		if !w.want[what] {
			more = append(more, fmt.Sprint(what))
		}
	}
	for what := range w.want {
		if !have[what] {
			missing = append(missing, fmt.Sprint(what))
		}
	}
	return missing, more
}
