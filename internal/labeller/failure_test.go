package labeller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
)

// TestThrottlingIsHonored: once the server has asked for a second of silence, it gets no more patches in that second
// than were under way: at most one from each of the 16 workers.
func TestThrottlingIsHonored(t *testing.T) {
	f := newFake(t)
	f.fill(200)
	var mu sync.Mutex
	var told time.Time // when 429 was first sent
	f.handle(func(verb string, w http.ResponseWriter, _ *http.Request) bool {
		if verb != "patch" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if told.IsZero() {
			told = time.Now()
		}
		if time.Since(told) > time.Second {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	l := start(t, f.config(), labeller.Options{QPS: 1e5, ScanPeriod: never})
	eventually(t, "all labelled", f.labelled)
	if n := l.Stats().Throttled; n == 0 || n > 16 {
		t.Errorf("%d patches were throttled, want 1 to 16", n)
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
	begun := time.Now()
	l := start(t, f.config(), labeller.Options{QPS: 1e5, ScanPeriod: never, Report: func(error) { reports.Add(1) }})
	eventually(t, "all but two are labelled", func() bool { return f.wrong() == 2 })
	f.put("new", nil)
	eventually(t, "a new one, too", func() bool { return f.label("new") != "" })
	eventually(t, "the refused one is tried again", func() bool { return bad.Load() >= 2 })
	if sum := l.Refused(256); sum.Objects != 0 && time.Since(begun) < 5*time.Second {
		t.Errorf("refused for a moment, and reported as %+v", sum)
	}
	eventually(t, "two are reported", func() bool { return l.Refused(256).Objects == 2 })
	if sum := l.Refused(256); sum.Slots.Len() != 2 || !strings.Contains(sum.Err.Error(), "ns/c000") {
		t.Errorf("reported as %+v", sum)
	}
	heal.Store(true)
	eventually(t, "all are labelled", f.labelled)
	eventually(t, "none is reported", func() bool { return l.Refused(256).Objects == 0 })
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
			f.put("two", map[string]string{label: "x"})
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": statusOf(http.StatusGone, "")})
		default:
			return false
		}
		return true
	})
	l := start(t, f.config(), labeller.Options{ScanPeriod: time.Hour,
		Report: func(err error) { t.Errorf("reported: %v", err) }})
	eventually(t, "both are labelled", func() bool {
		return f.label("one") == right("one") &&
			f.label("two") == right("two")
	})
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
			status(w, http.StatusGone, token+" ") // another token for the same page
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
	f.put("malformed", map[string]string{label: "x"})
	eventually(t, "labelled", f.labelled)
	if n := len(f.asked("watch rota.dev/hash notin")); n != 1 {
		t.Errorf("the long selector was tried %d times", n)
	}
}

// TestRefusedLater: a permission that goes and comes back is reported with the rule, and waited for.
func TestRefusedLater(t *testing.T) {
	for _, verb := range []string{"list", "watch", "patch"} {
		t.Run(verb, func(t *testing.T) { refusedLater(t, verb) })
	}
}

func refusedLater(t *testing.T, verb string) {
	f := newFake(t)
	f.put("one", nil)
	var denied atomic.Bool
	denied.Store(true)
	f.handle(func(v string, w http.ResponseWriter, _ *http.Request) bool {
		if v != verb || !denied.Load() {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":`+
			`"configmaps is forbidden: User \"jane\" cannot %s resource \"configmaps\" in API group \"\" at the cluster scope"}`,
			verb)
		return true
	})
	reported := make(chan error, 100)
	start(t, f.config(), labeller.Options{ScanPeriod: never, Report: func(err error) {
		select {
		case reported <- err:
		default:
		}
	}})
	var refused *permission.Error
	select {
	case err := <-reported:
		if !errors.As(err, &refused) || refused.User != "jane" || refused.Verb != verb || refused.Resource != "configmaps" ||
			refused.Namespace != "" {
			t.Errorf("reported %v", err)
		}
	case <-time.After(patience):
		t.Fatal("nothing was reported")
	}
	denied.Store(false)
	f.put("two", nil)
	eventually(t, "labelled", f.labelled)
}

// Lists and watches honor Retry-After, too.
func TestThrottledReads(t *testing.T) {
	f := newFake(t)
	f.put("one", nil)
	var mu sync.Mutex
	told := map[string]time.Time{}
	f.handle(func(verb string, w http.ResponseWriter, _ *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if verb != "list" && verb != "watch" {
			return false
		}
		if _, again := told[verb]; again {
			if d := time.Since(told[verb]); d < 900*time.Millisecond {
				t.Errorf("%s again after %v", verb, d)
			}
			return false
		}
		told[verb] = time.Now()
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	start(t, f.config(), labeller.Options{ScanPeriod: never})
	eventually(t, "watches", func() bool { return f.watches() == 1 })
	f.put("two", nil)
	eventually(t, "labelled", f.labelled)
}

// A patch that the server does not answer holds up few of the objects that the watch finds meanwhile.
func TestSlowPatches(t *testing.T) {
	const objects = 16
	f := newFake(t)
	release, slow := make(chan struct{}), atomic.Int32{}
	f.handle(func(verb string, _ http.ResponseWriter, r *http.Request) bool {
		if verb == "patch" && strings.HasSuffix(r.URL.Path, "/slow") && slow.Add(1) == 1 {
			<-release
		}
		return false
	})
	start(t, f.config(), labeller.Options{ScanPeriod: never})
	defer close(release)
	eventually(t, "the watch is open", func() bool { return f.watches() == 1 })
	f.put("slow", map[string]string{})
	eventually(t, "the slow patch is sent", func() bool { return slow.Load() == 1 })
	name := func(i int) string { return "o" + strconv.Itoa(i) }
	for i := range objects {
		f.put(name(i), map[string]string{})
	}
	eventually(t, "most others are labelled", func() bool {
		n := 0
		for i := range objects {
			if f.label(name(i)) == right(name(i)) {
				n++
			}
		}
		return n > objects/2
	})
	if slow.Load() != 1 {
		t.Error("the others waited until the slow patch was given up")
	}
}
