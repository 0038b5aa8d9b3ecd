package labeller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/labeller"
	"github.com/rota-dev/rota/slot"
)

const never = -1 * time.Second // no scans

func right(name string) string { return labeller.Value(slot.KeyName, "ns", name) }

func (f *fake) wrong() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for name, set := range f.objects {
		if set[labeller.Label] != right(name) {
			n++
		}
	}
	return n
}

func (f *fake) labelled() bool { return f.wrong() == 0 }

func (f *fake) fill(n int) {
	for i := range n {
		f.put(fmt.Sprintf("c%04d", i), map[string]string{"app": "x"})
	}
}

func (f *fake) handle(intercept func(verb string, w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.intercept = intercept
}

func TestBacklogThenWatch(t *testing.T) {
	f := newFake(t)
	f.fill(1200) // three pages
	f.put("malformed", map[string]string{labeller.Label: "x"})
	f.put("copied", map[string]string{labeller.Label: right("c0000")})
	l := start(t, f.config(), labeller.Options{QPS: 1e5})
	eventually(t, "the backlog and what a scan finds is labelled", f.labelled)
	f.put("new", map[string]string{"app": "x"})
	eventually(t, "a new object is labelled", f.labelled)
	f.put("new", map[string]string{labeller.Label: "004"})
	eventually(t, "a malformed label is put right", f.labelled)
	eventually(t, "all is counted", func() bool { return l.Stats().Patched >= 1204 })
	if got := l.Stats(); got.Patched > 1210 || got.Failures != 0 || got.Scanned < 1202 {
		t.Errorf("stats %+v", got)
	}
	for _, r := range f.asked("list ") {
		if r != "list !rota.dev/hash" && r != "list " {
			t.Errorf("%.40s", r)
		}
	}
}

// A new object does not wait for the end of a long backlog.
func TestNewObjectsPassTheBacklog(t *testing.T) {
	f := newFake(t)
	f.fill(600)
	start(t, f.config(), labeller.Options{QPS: 100, Burst: 1, ScanPeriod: never})
	eventually(t, "the watch is open", func() bool { return f.watches() > 0 })
	f.put("new", nil)
	took := eventually(t, "the new object is labelled", func() bool { return f.label("new") != "" })
	if left := f.wrong(); left < 200 {
		t.Errorf("only %d of the backlog were left after %v: the test shows nothing", left, took)
	}
}

func TestPatchRequest(t *testing.T) {
	f := newFake(t)
	var seen atomic.Pointer[http.Request]
	var body atomic.Pointer[string]
	f.handle(func(verb string, _ http.ResponseWriter, r *http.Request) bool {
		if verb == "patch" {
			b, _ := io.ReadAll(r.Body)
			text := string(b)
			body.Store(&text)
			r.Body = io.NopCloser(strings.NewReader(text))
			seen.Store(r)
		}
		return false
	})
	f.put("one", nil)
	start(t, f.config(), labeller.Options{ScanPeriod: never})
	eventually(t, "labelled", f.labelled)
	r := seen.Load()
	if r.URL.Path != "/api/v1/namespaces/ns/configmaps/one" || r.Header.Get("Content-Type") != "application/merge-patch+json" ||
		r.URL.Query().Get("fieldManager") != "rota-labeller" || r.URL.Query().Get("timeout") != "5s" {
		t.Errorf("%s, %s", r.URL, r.Header)
	}
	if want := `{"metadata":{"labels":{"rota.dev/hash":"` + right("one") + `"}}}`; *body.Load() != want {
		t.Errorf("body %s, want %s", *body.Load(), want)
	}
}

func TestThrottlingIsHonoured(t *testing.T) {
	f := newFake(t)
	f.fill(200)
	var mu sync.Mutex
	var told, early time.Time // when 429 was first sent; the first patch within the second after
	f.handle(func(verb string, w http.ResponseWriter, _ *http.Request) bool {
		if verb != "patch" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		since := time.Since(told)
		if told.IsZero() {
			told, since = time.Now(), 0
		}
		if since > time.Second {
			return false
		}
		if since > 100*time.Millisecond { // what was under way
			early = time.Now()
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	l := start(t, f.config(), labeller.Options{QPS: 1e5, ScanPeriod: never})
	took := eventually(t, "all labelled", f.labelled)
	mu.Lock()
	defer mu.Unlock()
	if !early.IsZero() {
		t.Errorf("a patch came %v after the server asked for a second", early.Sub(told))
	}
	if n := l.Stats().Throttled; n == 0 || n > 16 || took < time.Second {
		t.Errorf("%d patches were throttled in %v, want 1 to 16", n, took)
	}
}

// TestFailures: errors of the server are tried again, and an object that is refused for good holds up no other.
func TestFailures(t *testing.T) {
	f := newFake(t)
	f.fill(100)
	var bad atomic.Int32
	var heal, aborted, conflicted atomic.Bool
	f.handle(func(verb string, w http.ResponseWriter, r *http.Request) bool {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case verb != "patch":
			return false
		case name == "c0003" && !heal.Load():
			bad.Add(1)
			status(w, http.StatusUnprocessableEntity, "")
		case name == "c0004" && !heal.Load():
			status(w, http.StatusInternalServerError, "")
		case name == "c0010" && !aborted.Swap(true):
			panic(http.ErrAbortHandler) // no answer
		case name == "c0020" && !conflicted.Swap(true):
			status(w, http.StatusConflict, "")
		default:
			return false
		}
		return true
	})
	var reports atomic.Int32
	l := start(t, f.config(), labeller.Options{QPS: 1e5, ScanPeriod: never, Report: func(error) { reports.Add(1) }})
	eventually(t, "all but two are labelled", func() bool { return f.wrong() == 2 })
	f.put("new", nil)
	eventually(t, "a new one, too", func() bool { return f.label("new") != "" })
	eventually(t, "the refused one is tried again", func() bool { return bad.Load() >= 2 })
	heal.Store(true)
	eventually(t, "all are labelled", f.labelled)
	if got := l.Stats(); got.Conflicts != 1 || got.Failures == 0 || reports.Load() == 0 {
		t.Errorf("stats %+v, %d reports", got, reports.Load())
	}
}

// TestExpiredWatch: after 410, in an answer or in the stream, a list begins anew.
func TestExpiredWatch(t *testing.T) {
	f := newFake(t)
	var watches atomic.Int32
	f.handle(func(verb string, w http.ResponseWriter, _ *http.Request) bool {
		if verb != "watch" {
			return false
		}
		switch watches.Add(1) {
		case 1:
			f.put("one", nil)
			status(w, http.StatusGone, "")
		case 2:
			f.put("two", map[string]string{labeller.Label: "x"})
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": statusOf(http.StatusGone, "")})
		default:
			return false
		}
		return true
	})
	l := start(t, f.config(), labeller.Options{ScanPeriod: time.Hour, Report: func(err error) { t.Errorf("reported: %v", err) }})
	eventually(t, "both are labelled", func() bool { return f.label("one") == right("one") && f.label("two") == right("two") })
	eventually(t, "watches again", func() bool { return f.watches() == 1 })
	// The first list is followed by a scan; those that stand in for a watch find what is malformed.
	if short, long := len(f.asked("list !")), len(f.asked("list rota.dev/hash notin")); short != 1 || long != 2 {
		t.Errorf("%d short and %d long lists, want 1 and 2; %+v", short, long, l.Stats())
	}
}

// A list that takes too long goes on with the token that the server offers.
func TestExpiredPage(t *testing.T) {
	f := newFake(t)
	f.fill(1200)
	var once atomic.Bool
	f.handle(func(verb string, w http.ResponseWriter, r *http.Request) bool {
		if token := r.URL.Query().Get("continue"); verb == "list" && token != "" && !once.Swap(true) {
			status(w, http.StatusGone, token+"z")
			return true
		}
		return false
	})
	l := start(t, f.config(), labeller.Options{QPS: 1e5, ScanPeriod: never})
	eventually(t, "all labelled", f.labelled)
	if got := l.Stats().Lists; got != 1 {
		t.Errorf("%d lists, want 1", got)
	}
}

func TestProxyRefusesLongURLs(t *testing.T) {
	f := newFake(t)
	f.handle(func(_ string, w http.ResponseWriter, r *http.Request) bool {
		if len(r.URL.RawQuery) > 8<<10 {
			http.Error(w, "too long", http.StatusRequestURITooLong)
			return true
		}
		return false
	})
	start(t, f.config(), labeller.Options{ScanPeriod: 100 * time.Millisecond})
	eventually(t, "watches", func() bool { return f.watches() == 1 })
	f.put("new", nil)
	f.put("malformed", map[string]string{labeller.Label: "x"})
	eventually(t, "labelled", f.labelled)
	if n := len(f.asked("watch rota.dev/hash notin")); n != 1 {
		t.Errorf("the long selector was tried %d times", n)
	}
}

// TestPermit: nothing is asked without permission, all of it stops at its end, and begins with a list when it comes back.
func TestPermit(t *testing.T) {
	f := newFake(t)
	f.put("one", nil)
	var allowed atomic.Bool
	var inside, most atomic.Int32
	permit := func(ctx context.Context) (context.Context, func(), bool) {
		if !allowed.Load() {
			return nil, nil, false
		}
		most.Store(max(most.Load(), inside.Add(1)))
		return ctx, func() { inside.Add(-1) }, true
	}
	start(t, f.config(), labeller.Options{Permit: permit, QPS: 50, Burst: 1})
	eventually(t, "the permissions are checked", func() bool { return len(f.asked("review")) == 3 })
	<-time.After(600 * time.Millisecond)
	if asked := slices.Concat(f.asked("list"), f.asked("watch"), f.asked("patch")); len(asked) > 0 {
		t.Fatalf("without permission: %v", asked)
	}
	allowed.Store(true)
	eventually(t, "labelled", f.labelled)
	eventually(t, "watches", func() bool { return f.watches() == 1 })
	f.fill(100)
	eventually(t, "some are labelled", func() bool { return f.wrong() < 90 })
	allowed.Store(false)
	took := eventually(t, "the watch ends and no batch is left", func() bool { return f.watches() == 0 && inside.Load() == 0 })
	if t.Logf("stopped %v after the permission", took); took > 5*time.Second {
		t.Error("too late")
	}
	patches, lists := len(f.asked("patch")), len(f.asked("list !"))
	<-time.After(600 * time.Millisecond)
	if n := len(f.asked("patch")); n != patches {
		t.Errorf("%d patches after the end", n-patches)
	}
	allowed.Store(true)
	eventually(t, "labelled", f.labelled)
	if n := len(f.asked("list !")); n <= lists {
		t.Error("no fresh list")
	}
}

func TestRate(t *testing.T) {
	f := newFake(t)
	f.fill(120)
	start(t, f.config(), labeller.Options{QPS: 100, Burst: 20, ScanPeriod: never})
	if took := eventually(t, "labelled", f.labelled); took < 900*time.Millisecond {
		t.Errorf("120 objects in %v at 100/s after 20", took)
	}
}
