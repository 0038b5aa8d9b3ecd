package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/store/memory"
)

// answering is an API server.
type answering func(*http.Request) (body string)

func (f answering) RoundTrip(req *http.Request) (*http.Response, error) {
	body := f(req)
	if body == "" { // it hangs
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Request: req, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

// A panic in a list is told with its stack, and the list is made again.
func TestShadowSurvivesAPanicInAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		s := &shadows{t: t, memory: memory.New(), reports: newSharedReports()}
		stop := s.start("a", &websites{count: 5, panics: 1}, func(o *Options) { o.Logger = log.logger() })
		time.Sleep(time.Minute)
		log.wants(t, 1, "cannot list", "panic: no list", "shadow_test.go")
		if r := s.all()[0].account.Report(s.all()[0].ID(), nil); len(r.Would) != 1 || r.Would[0].Objects != 5 {
			t.Errorf("it counted %+v", r.Would)
		}
		stop()
	})
}

// So is a panic in what a shadow's Start does.
func TestShadowSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		shadow, err := NewShadow(&rest.Config{Host: "https://127.0.0.1:1"},
			Options{Name: "website", Namespace: "operators", Logger: log.logger()}, website)
		noError(t, err)
		tries := 0
		shadow.made = func(*Engine) {
			tries++
			panic("no member")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*shadowRetry-time.Second)
		defer cancel()
		if err := shadow.Start(ctx); err != nil || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
		log.wants(t, 2, "panic: no member", "expectation_test.go")
	})
}

// With an API server that hangs, Start returns in time, whatever the operator's own LeaveTimeout.
func TestShadowLeavesInTime(t *testing.T) {
	for _, test := range []struct{ leave, want time.Duration }{
		{0, shadowLeave}, {25 * time.Second, shadowLeave}, {time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := &rest.Config{Host: "http://127.0.0.1:1", Transport: answering(func(*http.Request) string { return "" })}
			shadow, err := NewShadow(cfg, Options{Name: "website", Namespace: "operators", LeaveTimeout: test.leave,
				Logger: logr.Discard()}, website)
			noError(t, err)
			made := make(chan *Engine, 1)
			shadow.made = func(r *Engine) {
				r.rest = nil
				made <- r
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- shadow.Start(ctx) }()
			time.Sleep(time.Minute)
			(<-made).store.Notify(t.Context(), member.Notify{Reason: "Leaving", Message: "m"})
			end := time.Now()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if took := time.Since(end); took > test.want {
				t.Errorf("with LeaveTimeout %v it took %v, want %v at most", test.leave, took, test.want)
			}
			time.Sleep(10 * time.Second) // what was under way ends by itself
		})
	}
}

// A kind whose group does not answer keeps no other one from being counted, and is told.
func TestShadowListsWhatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		secrets := secretKind
		cfg := &rest.Config{Host: "http://127.0.0.1:1", Transport: answering(func(req *http.Request) string {
			switch req.URL.Path {
			case "/api/v1":
				return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1",
				  "resources":[{"name":"secrets","namespaced":true,"kind":"Secret","verbs":["list"]}]}`
			case "/api/v1/secrets":
				return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},
				  "items":[{"metadata":{"namespace":"a","name":"b","resourceVersion":"7"}}]}`
			}
			return ""
		})}
		shadow, err := NewShadow(cfg, Options{Name: "website", Namespace: "operators", Logger: log.logger()}, website, secrets)
		noError(t, err)
		var made *Engine
		shared, reports := memory.New(), newSharedReports()
		shadow.made = func(r *Engine) {
			r.store, r.reports, r.rest, made = shared.Client(nil), reports, nil, r
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := shadow.Start(ctx); err != nil {
			t.Error(err)
		}
		if seen := made.account.Report(made.ID(), nil).Would; len(seen) != 1 || seen[0].Kind != secrets ||
			seen[0].Changed != 0 || seen[0].Over == 0 { // it is older than the list before
			t.Errorf("counted %+v", seen)
		}
		log.wants(t, 1, "cannot list", website.String(), "did not answer within 10s")
	})
}

// pacer takes its time to list.
type pacer struct {
	takes time.Duration
	at    []time.Time
}

func (p *pacer) List(ctx context.Context, _ schema.GroupKind, _ func(metav1.Object)) (string, error) {
	p.at = append(p.at, time.Now())
	_ = await.Sleep(ctx, p.takes)
	return fmt.Sprint(len(p.at)), nil
}

// firstList is the longest time before the first list of a member.
const firstList = 10 * time.Second

// Lists take at most 1/1000 of the time, however long they take, and do not begin at one time on all members.
func TestShadowPace(t *testing.T) {
	first := map[time.Duration]bool{}
	for _, test := range []struct{ set, period, spread time.Duration }{
		{0, 7000 * time.Second, firstList}, {0, 7000 * time.Second, firstList}, {0, 7000 * time.Second, firstList},
		{time.Second, time.Second, time.Second}, {time.Hour, time.Hour, firstList},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &shadows{t: t, memory: memory.New(), reports: newSharedReports()}
			p, begun := &pacer{takes: 7 * time.Second}, time.Now()
			stop := s.startFrom("a", p, func(o *Options) { o.ScrubPeriod = test.set })
			time.Sleep(2*test.period + 3*firstList)
			stop()
			synctest.Wait()
			wait := p.at[0].Sub(begun)
			if wait > test.spread || len(p.at) < 2 || p.at[1].Sub(p.at[0]) != test.period+p.takes {
				t.Fatalf("ScrubPeriod %v: the first list after %v, the second after %v", test.set, wait, p.at[1:])
			}
			first[wait] = true
		})
	}
	if len(first) < 4 {
		t.Errorf("the first lists came after %v, want random times", first)
	}
}
