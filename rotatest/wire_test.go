package rotatest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/cable"
)

// lone returns a member that works on nothing, for tests of its wire.
func lone(seed uint64, number int) *member {
	r := &run{kit: &kit{seed: seed}, fault: reference, record: newRecord(nil)}
	r.reconciles = newReconciles(r)
	r.guard = &guard{record: r.record}
	m := &member{run: r, name: "member-1", number: number, stop: func() {}}
	m.wire = newWire(m)
	r.members = []*member{m}
	return m
}

// A create that was under way when its member was killed is in the record, and its caller does not hear of it.
func TestWriteUnderWayIsRecorded(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !strings.HasSuffix(r.URL.Path, "/secrets") { // the write of which the member dies
			w.WriteHeader(http.StatusCreated)
			return
		}
		arrived <- struct{}{}
		<-answer
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"b-x7","uid":"u"}}`)
	}))
	defer server.Close()
	m := lone(1, 1)
	transport := m.wire.operators(server.Client().Transport)
	post := func(resource string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			server.URL+"/api/v1/namespaces/a/"+resource, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	result := make(chan error, 1)
	go func() { result <- post("secrets") }()
	<-arrived
	m.run.killer.arm([]*killPoint{{of: "create configmaps", left: 1}, {of: "create secrets", left: 1}})
	if err := post("configmaps"); !errors.Is(err, cable.ErrUnplugged) {
		t.Errorf("the write of which the member died: %v", err)
	}
	if err := <-result; !errors.Is(err, cable.ErrUnplugged) {
		t.Errorf("the write under way: %v", err)
	}
	if err := post("pods"); !errors.Is(err, cable.ErrUnplugged) {
		t.Errorf("a write of the dead: %v", err)
	}
	close(answer)
	m.wire.underway.Wait()
	if w, ok := m.run.record.creation("u"); !ok || w.Name.Name != "b-x7" {
		t.Errorf("the record has %v, %t", w, ok)
	}
	if n := len(m.run.record.writes); n != 2 {
		t.Errorf("%d writes are in the record, want 2", n)
	}
	missed, deaths := m.run.killer.disarm()
	if len(missed) != 1 || missed[0].of != "create secrets" || len(deaths) != 1 || m.run.killer.total() != 1 {
		t.Errorf("missed %v, deaths %v", missed, deaths)
	}
}

// Whoever comes to a point first dies, and dies once.
func TestKiller(t *testing.T) {
	a, b := lone(1, 1), lone(1, 2)
	k := &killer{}
	k.arm([]*killPoint{{of: "create secrets", left: 2}, {of: "create secrets", left: 1}})
	created := write{verb: "create"}
	created.Resource.Resource = "secrets"
	updated := write{verb: "update"}
	updated.Resource.Resource = "secrets"
	for i, step := range []struct {
		of   *member
		done write
		dies bool
	}{{a, updated, false}, {a, created, false}, {b, created, true}, {b, created, false}, {a, created, true}, {lone(1, 3), created, false}} {
		if dies := k.kills(step.of, step.done); dies != step.dies {
			t.Errorf("step %d: dies %t, want %t", i, dies, step.dies)
		}
	}
	if deaths, more := k.next(); len(deaths) != 2 || deaths[0].of != b || more {
		t.Errorf("deaths %v, more %t", deaths, more)
	}
}

// A lag comes of the seed, the member's number within its run and the resource alone.
func TestLag(t *testing.T) {
	watch := func(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, http.NoBody) }
	lag := func(seed uint64, number int, path string) time.Duration {
		m := lone(seed, number)
		m.name = "member-7"
		return m.wire.lag(watch(path))
	}
	one := lag(1, 1, "/api/v1/secrets")
	if again := lone(1, 1).wire.lag(watch("/api/v1/secrets")); again != one {
		t.Errorf("the lag is %v, and then %v", one, again)
	}
	for _, other := range []time.Duration{lag(2, 1, "/api/v1/secrets"), lag(1, 2, "/api/v1/secrets"), lag(1, 1, "/api/v1/pods")} {
		if other == one || other < minLag || other >= maxLag {
			t.Errorf("the lag of another is %v, as well as %v", other, one)
		}
	}
}
