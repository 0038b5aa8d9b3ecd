package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// unstarted returns a dispatcher that does not run.
func unstarted(t *testing.T) *keeper.Dispatcher {
	t.Helper()
	begun := time.Now()
	d, err := keeper.NewOf(adapter.Parts{
		Slots: 16, Key: slot.KeyName, Late: func() time.Duration { return time.Since(begun) },
	}, keeper.Options{Kinds: []keeper.Kind{{Kind: schema.GroupKind{Kind: "ConfigMap"}}}})
	require.NoError(t, err)
	return d
}

// TestPeers: a dispatcher is told of when it comes, and when it comes back, and is asked only over the scheme that this
// one has.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, self := NewProcess(), NewProcess()
		var reports []Address
		found := 0
		p := newPeers(Options{
			Dispatcher: unstarted(t), Logger: logr.Discard(), Process: self, URL: "https://10.0.0.9:8443",
			Reports: func(context.Context) ([]Address, error) { return reports, nil },
		}, func() { found++ })
		look := func(told int, now ...string) {
			t.Helper()
			reports = nil
			for _, at := range now {
				reports = append(reports, Address{At: at})
			}
			time.Sleep(time.Second)
			require.NoError(t, p.refresh(t.Context(), p.refreshed+1))
			if found != told {
				t.Errorf("%q: told %d times, want %d", now, found, told)
			}
		}
		at := other.At("https://10.0.0.1:8443")
		look(0, self.At("https://10.0.0.9:8443"))
		look(1, at)
		look(1, at)
		look(1)
		if p.has(other) || p.get(other) == nil {
			t.Error("it is asked although it has no report, or forgotten at once")
		}
		look(2, at)
		for _, bad := range []string{
			"http://10.0.0.2:80", "https://10.0.0.2/path", "https://u:p@10.0.0.2", "https://10.0.0.2?a=b", "https://", "",
		} {
			look(2, at, NewProcess().At(bad))
		}
		if all := p.all(); len(all) != 1 || all[0] != other {
			t.Errorf("asked: %v", all)
		}

		// It dies. Its report stays, for longer than it is remembered without one.
		reports = []Address{{At: at, Out: true}}
		for range 2 * remembered / time.Second {
			time.Sleep(time.Second)
			require.NoError(t, p.refresh(t.Context(), p.refreshed+1))
			if all := p.all(); len(all) > 0 || p.has(other) {
				t.Fatalf("asked although it is not in the table: %v", all)
			}
		}
		if k := p.get(other); k == nil || k.reported {
			t.Errorf("known: %+v; its takes have to be told as ended if it does not answer", k)
		}
		look(3, at)
	})
}

// silent are dispatchers that take connections, and never answer.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// alone returns a Front that knows one other dispatcher, over the transport.
func alone(t *testing.T, others http.RoundTripper, read func()) *Front {
	t.Helper()
	other := NewProcess().At("https://10.0.0.1:8443")
	f, err := New(Options{
		Dispatcher: unstarted(t), Guard: anyone{}, Process: NewProcess(), Self: "dispatcher", URL: "https://10.0.0.9:8443",
		Reports: func(context.Context) ([]Address, error) {
			read()
			return []Address{{At: other}}, nil
		},
		Client: &http.Client{Transport: others}, Logger: logr.Discard(),
	})
	require.NoError(t, err)
	require.NoError(t, f.peers.refresh(t.Context(), 0))
	return f
}

// answers has a Front answer a request.
func answers(t *testing.T, f *Front, method, path string, in, out any) {
	t.Helper()
	text, err := json.Marshal(in)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(text))
	r.Header.Set("Content-Type", wire.TypeJSON)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != http.StatusOK {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
}

// TestSilentDispatcher: the figures come within a second although another dispatcher does not answer, and at once where
// it did not a moment ago.
func TestSilentDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := alone(t, silent{}, func() {})
		for _, want := range []time.Duration{time.Second, 0} {
			begun := time.Now()
			var stats wire.Stats
			answers(t, f, http.MethodGet, wire.PathStats, nil, &stats)
			if took := time.Since(begun); took != want || stats.Dispatchers != 2 || stats.Silent != 1 {
				t.Errorf("%+v after %v, want %v", stats, took, want)
			}
			time.Sleep(sumFor)
		}
	})
}

// counted are dispatchers that answer with no figures, and count requests.
type counted struct{ atomic.Int32 }

func (c *counted) RoundTrip(*http.Request) (*http.Response, error) {
	c.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// TestStatsAreShared: however many ask for the figures, other dispatchers are asked a few times a second.
func TestStatsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var others counted
		f := alone(t, &others, func() {})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 10 {
					answers(t, f, http.MethodGet, wire.PathStats, nil, &wire.Stats{})
					time.Sleep(sumFor / 10)
				}
			})
		}
		all.Wait()
		if n := others.Load(); n > 2 {
			t.Errorf("another dispatcher was asked %d times by 1,000 requests", n)
		}
	})
}

// TestForgedTakes: all tokens that name unknown processes together cost one reading of the reports.
func TestForgedTakes(t *testing.T) {
	for _, requests := range []int{1, 300} {
		synctest.Test(t, func(t *testing.T) {
			read, most := 0, 0
			f := alone(t, silent{}, func() {
				read++
				time.Sleep(time.Second)
				most = max(most, runtime.NumGoroutine())
			})
			before := runtime.NumGoroutine()
			said := map[string]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for range requests {
				all.Go(func() {
					var in wire.DoneAllRequest
					for range wire.MaxTakes {
						forger := &Front{o: Options{Process: NewProcess()}}
						forged := forger.seal(token{process: forger.o.Process, what: tokenTake}, "x")
						in.Takes = append(in.Takes, wire.DoneRequest{Token: forged})
					}
					var out wire.DoneAllResponse
					answers(t, f, http.MethodPost, wire.PathDone, in, &out)
					mu.Lock()
					defer mu.Unlock()
					for _, each := range out.Takes {
						said[strings.TrimPrefix(each.Problem.Type, wire.ProblemBase)]++
					}
				})
			}
			all.Wait()
			ended := min(requests, maxAsking) * wire.MaxTakes
			if said[wire.ProblemEnded] < ended || said[wire.ProblemEnded]+said[wire.ProblemUnavailable] != requests*wire.MaxTakes {
				t.Errorf("%d requests: %v, want %d that have ended, and the rest unavailable", requests, said, ended)
			}
			if read > 3 || most > before+requests+5 {
				t.Errorf("%d requests: the reports were read %d times, with %d goroutines at most, %d before", requests, read, most,
					before)
			}
		})
	}
}

// TestAddresses: the report of a member that is not in the table is told apart.
func TestAddresses(t *testing.T) {
	list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
	for _, member := range []string{"alive", "dead", "no-dispatcher"} {
		report := coverage.Report{Member: member, Serial: 1, Setup: map[string]string{}}
		if member != "no-dispatcher" {
			report.Setup[coverage.SettingDispatcher] = "at " + member
		}
		data, err := report.Encode()
		require.NoError(t, err)
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: member, Labels: map[string]string{names.LabelCoverage: "x"}, Annotations: map[string]string{},
		}}
		for field, text := range data {
			lease.Annotations[names.AnnotationReport+field] = text
		}
		list.Items = append(list.Items, lease)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	var known *table.Table
	read, err := Reports(&rest.Config{Host: server.URL}, types.NamespacedName{Namespace: "ns", Name: "x"},
		func() *table.Table { return known })
	require.NoError(t, err)
	for _, c := range []struct {
		table *table.Table
		want  []Address
	}{
		{nil, []Address{{At: "at alive"}, {At: "at dead"}}},
		{&table.Table{Members: []table.Member{{ID: "alive"}}}, []Address{{At: "at alive"}, {At: "at dead", Out: true}}},
	} {
		known = c.table
		if got, err := read(t.Context()); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v, error %v, want %+v", got, err, c.want)
		}
	}
}
