package labeller_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
)

const never = -1 * time.Second // no scans

func right(name string) string { return labeller.Value(slot.KeyName, "ns", name) }

func (f *fake) wrong() int {
	n := 0
	objects, _, _ := f.memory.List(context.Background()) // memory never fails
	for _, obj := range objects {
		if obj.Labels[label] != right(obj.Key.Name) {
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
	f.put("malformed", map[string]string{label: "x"})
	f.put("copied", map[string]string{label: right("c0000")})
	l := start(t, f.config(), labeller.Options{QPS: 1e5})
	eventually(t, "the backlog and what a scan finds is labelled", f.labelled)
	f.put("new", map[string]string{"app": "x"})
	eventually(t, "a new object is labelled", f.labelled)
	f.put("new", map[string]string{label: "004"})
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
	if r.URL.Path != "/api/v1/namespaces/ns/configmaps/one" ||
		r.Header.Get("Content-Type") != "application/merge-patch+json" ||
		r.URL.Query().Get("fieldManager") != "rota-labeller" || r.URL.Query().Get("timeout") != "5s" {
		t.Errorf("%s, %s", r.URL, r.Header)
	}
	if want := `{"metadata":{"labels":{"rota.dev/hash":"` + right("one") + `"}}}`; *body.Load() != want {
		t.Errorf("body %s, want %s", *body.Load(), want)
	}
}

func TestRate(t *testing.T) {
	f := newFake(t)
	f.fill(120)
	begun := time.Now()
	start(t, f.config(), labeller.Options{QPS: 100, Burst: 20, ScanPeriod: never})
	eventually(t, "labelled", f.labelled)
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("120 objects in %v at 100/s after 20", took)
	}
}
