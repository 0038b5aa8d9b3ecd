package destination

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// bench is a destination with a receiver and a clock of its own.
type bench struct {
	*Destination
	t        *testing.T
	clock    time.Time
	answer   http.HandlerFunc
	registry *prometheus.Registry
}

func newBench(t *testing.T, change func(*config.Destination)) *bench {
	t.Helper()
	b := &bench{t: t, clock: time.Unix(1_000_000, 0), registry: prometheus.NewRegistry()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.answer(w, r) }))
	t.Cleanup(server.Close)
	c := config.Destination{
		Name: "audit", Webhook: &config.Webhook{URL: server.URL + "/hidden"}, Rate: 1, Burst: 1000, Timeout: 5 * time.Second,
		Backoff: config.Backoff{Min: time.Second, Max: time.Minute},
	}
	if change != nil {
		change(&c)
	}
	b.Destination = New(c, "//eu-1", NewMetrics(b.registry))
	b.now = func() time.Time { return b.clock }
	return b
}

// send sends a notice about an object and returns how long the object then has to wait.
func (b *bench) send(object string, answer http.HandlerFunc) (time.Duration, error) {
	b.t.Helper()
	if wait := b.Wait(object); wait > 0 {
		b.t.Fatalf("%s has to wait for %s", object, wait)
	}
	b.answer = answer
	err := b.Send(b.t.Context(), object, notice.Notice{ID: object + "-1-created", Type: notice.Created, Time: b.clock})
	return b.Wait(object), err
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		http.Error(w, "because", code)
	}
}

func TestAnswers(t *testing.T) {
	date := time.Unix(1_000_090, 0).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		low      time.Duration // of the wait
		high     time.Duration
		refused  bool
		contains string
	}{
		{"200", status(200), 0, 0, false, ""},
		{"204", status(204), 0, 0, false, ""},
		{"500", status(500), 800 * time.Millisecond, time.Second, false, `500 Internal Server Error: "because"`},
		{"503 and seconds", status(503, "Retry-After", "120"), 2 * time.Minute, 2 * time.Minute, false, "503"},
		{"503 and a date", status(503, "Retry-After", date), 90 * time.Second, 90 * time.Second, false, "503"},
		{"429 and seconds", status(429, "Retry-After", "30"), 30 * time.Second, 30 * time.Second, false, "429"},
		{"too long", status(503, "Retry-After", "999999"), time.Hour, time.Hour, false, "503"},
		{"shorter than the back-off", status(503, "Retry-After", "0"), 800 * time.Millisecond, time.Second, false, "503"},
		{"nonsense", status(503, "Retry-After", "soon"), 800 * time.Millisecond, time.Second, false, "503"},
		{"400", status(400), 0, 0, true, "400"},
		{"422", status(422), 0, 0, true, "422"},
		{"401", status(401), 800 * time.Millisecond, time.Second, false, "correct its url or its rights"},
		{"404", status(404), 800 * time.Millisecond, time.Second, false, "correct its url or its rights"},
		{"redirect", status(302, "Location", "/elsewhere"), 800 * time.Millisecond, time.Second, false, "302"},
		{"no answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			800 * time.Millisecond, time.Second, false, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil)
			wait, err := b.send("a", c.answer)
			if wait < c.low || wait > c.high {
				t.Errorf("waits for %s, want %s to %s", wait, c.low, c.high)
			}
			var refused *RefusedError
			if errors.As(err, &refused) != c.refused || (err == nil) != (c.contains == "") {
				t.Errorf("got %v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.contains) || strings.Contains(err.Error(), "hidden")) {
				t.Errorf("got %v, want %q and no URL", err, c.contains)
			}
			if got, want := b.Accepted("a-1-created"), err == nil; got != want {
				t.Errorf("accepted: %t, want %t", got, want)
			}
			if got, want := b.Wait("b") > 0, c.low > 0; got != want {
				t.Errorf("others wait: %t, want %t", got, want)
			}
		})
	}
}

// TestBackoff: failures make the destination wait longer and longer, once for all that were in flight; a success ends
// that for others, but not for the object whose notice fails.
func TestBackoff(t *testing.T) {
	b := newBench(t, nil)
	for i, most := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		wait, _ := b.send("a", status(500))
		if most *= time.Second; wait < most*8/10 || wait > most {
			t.Errorf("after %d failures it waits for %s, want %s to %s", i+1, wait, most*8/10, most)
		}
		b.clock = b.clock.Add(wait)
	}
	if _, err := b.send("b", status(200)); err != nil {
		t.Error(err)
	}
	if wait := b.Wait("c"); wait > 0 {
		t.Errorf("after a success others wait for %s", wait)
	}
	_, _ = b.send("a", status(500))
	if c, a := b.Wait("c"), b.Wait("a"); c > time.Second || a < 48*time.Second {
		t.Errorf("others wait for %s, want at most 1s; what fails waits for %s, want a minute", c, a)
	}
}

// TestFailuresInFlight: failures of requests that began before the destination was closed count once.
func TestFailuresInFlight(t *testing.T) {
	b := newBench(t, nil)
	b.answer = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get(notice.IDHeader), "a") {
			b.answer = status(500)
			b.clock = b.clock.Add(time.Millisecond)
			if err := b.Send(t.Context(), "b", notice.Notice{ID: "b"}); err == nil {
				t.Error("no error")
			}
		}
		status(500)(w, r)
	}
	started := b.clock
	if err := b.Send(t.Context(), "a", notice.Notice{ID: "a"}); err == nil {
		t.Error("no error")
	}
	b.clock = started.Add(1500 * time.Millisecond) // a second failure has others wait for 1.6 s at least
	if wait := b.Wait("c"); wait > 0 {
		t.Errorf("waits for %s more after two failures at once, want at most 1s in all", wait)
	}
}

// TestRate: objects get their turns at the rate, and keep the turn that they were given.
func TestRate(t *testing.T) {
	b := newBench(t, func(c *config.Destination) { c.Rate, c.Burst = 10, 2 })
	for i, want := range []time.Duration{0, 0, 100, 200, 300} {
		if got := b.Wait(fmt.Sprint(i)); got != want*time.Millisecond {
			t.Errorf("object %d waits for %s, want %dms", i, got, want)
		}
	}
	b.clock = b.clock.Add(200 * time.Millisecond)
	if got := []time.Duration{b.Wait("2"), b.Wait("3"), b.Wait("4")}; got[0] != 0 || got[1] != 0 || got[2] != 100*time.Millisecond {
		t.Errorf("they wait for %s", got)
	}
	if !b.Due("3") || b.Due("4") || !b.Due("5") {
		t.Error("Due and Wait differ")
	}
}

func TestMetrics(t *testing.T) {
	b := newBench(t, nil)
	_, _ = b.send("a", status(200))
	_, _ = b.send("a", status(400))
	_, _ = b.send("a", status(500))
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"notify_requests_total audit ok": 1, "notify_requests_total audit refused": 1, "notify_requests_total audit failed": 1,
		"notify_dropped_total refused audit": 0, "notify_dropped_total too-many audit": 0, "notify_delay_seconds audit": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Settled("a-1-created")
	if b.Accepted("a-1-created") {
		t.Error("it is still remembered")
	}
}
