package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

var website = schema.GroupKind{Group: "web.example.com", Kind: "Website"}

// websites are what there is: so many objects, of which some have their labels, and some change with every list.
type websites struct {
	count, labeled, changing int
	panics                   int64 // so many of the first lists panic
	roles                    *sharding.Roles
	lists                    atomic.Int64
}

func (s *websites) List(_ context.Context, kind schema.GroupKind, each func(metav1.Object)) (string, error) {
	n := s.lists.Add(1) // 1,000 versions for each list
	if n <= s.panics {
		panic("no list")
	}
	for i := range s.count {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("site-", i),
			ResourceVersion: "7"}}
		if i < s.labeled {
			obj.Labels = s.roles.Stamps(kind, obj)
		}
		if i < s.changing {
			obj.ResourceVersion = fmt.Sprint(1000*n - 1)
		}
		each(obj)
	}
	return fmt.Sprint(1000 * n), nil
}

// shadows are members of a rota of shadows in memory.
type shadows struct {
	t       *testing.T
	memory  *memory.Store
	reports *sharedReports
	mu      sync.Mutex
	members []*Engine
}

func (s *shadows) all() []*Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.members)
}

func (s *shadows) start(pod string, from *websites, change ...func(*Options)) (stop func()) {
	s.t.Helper()
	return s.startFrom(pod, from, change...)
}

func (s *shadows) startFrom(pod string, from report.Objects, change ...func(*Options)) (stop func()) {
	s.t.Helper()
	o := Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: pod}, Delivery: sharding.SlotLabel,
		Label: true, LeaderElectionID: "website-operator", Logger: logr.Discard(), Slots: 64}
	for _, f := range change {
		f(&o)
	}
	shadow, err := NewShadow(&rest.Config{Host: "https://127.0.0.1:1"}, o, website)
	require.NoError(s.t, err)
	shadow.from = from
	if all, ok := from.(*websites); ok {
		all.roles = sharding.New(sharding.Options{Slots: shadow.opts.Slots, Key: shadow.opts.Key, Label: true})
		require.NoError(s.t, all.roles.Shard(website))
	}
	shadow.made = func(r *Engine) {
		r.store, r.reports, r.rest = s.memory.Client(nil), s.reports, nil
		s.mu.Lock()
		defer s.mu.Unlock()
		s.members = append(s.members, r)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- shadow.Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Start returned %v, which would end the operator", err)
		}
	}
}

// Shadows divide the slots of a table of their own, report what each would have, and work on nothing: no gate opens, not
// while they come, stay or go.
func TestShadowsDecideAndWorkOnNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shadows{t: t, memory: memory.New(), reports: newSharedReports()}
		look := func() {
			for _, r := range s.all() {
				if open := r.gate.Working(); !open.Empty() {
					t.Fatalf("slots %v are open at %s", open, r.ID())
				}
				if kinds := r.share.Kinds(); len(kinds)+r.labels.Len() > 0 || r.candidacy() != nil {
					t.Fatalf("it shards %v, labels %v, or takes part in a leader election", kinds, r.labels.Len())
				}
			}
		}
		wait := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				look()
			}
		}
		var stops []func()
		for _, pod := range []string{"a", "b", "c"} {
			stops = append(stops, s.start(pod, &websites{count: 300, labeled: 100, changing: 30}))
			wait(10 * time.Second)
		}
		wait(time.Minute)
		table := s.all()[0].state.Table()
		if len(table.Members) != 3 || len(table.Duties) > 0 || table.Slots != 64 {
			t.Fatalf("table:\n%s", table)
		}
		for _, m := range table.Members {
			owned := table.Owned(m.ID)
			if n := owned.Len(); n < 21 || n > 22 {
				t.Errorf("%s would own %d slots, want a third", m.ID, n)
			}
		}
		for _, run := range table.Runs {
			if run.Owner == "" || run.Next != "" || run.Unsettled {
				t.Errorf("slots %v have not come to rest: %+v", run.Slots, run)
			}
		}
		all, err := s.reports.Read(t.Context())
		if err != nil || len(all) != 3 {
			t.Fatalf("%d reports, %v", len(all), err)
		}
		var sum coverage.Would
		for _, r := range all {
			if !r.Open.Empty() || r.Waits != "this member is a shadow, which works on nothing" || len(r.Would) != 1 {
				t.Fatalf("report %+v", r)
			}
			w := r.Would[0]
			in := 0
			owned := table.Owned(r.Member)
			for n, d := range r.Digests[website] {
				if !owned.Has(n) {
					t.Errorf("%s reports slot %d, which it does not own", r.Member, n)
				}
				in += d.Objects
			}
			if w.Kind != website || w.Objects != in || w.Objects == 0 || w.Over == 0 {
				t.Errorf("%s would have %+v, and reports %d objects", r.Member, w, in)
			}
			sum.Objects, sum.Unlabelled, sum.Changed = sum.Objects+w.Objects, sum.Unlabelled+w.Unlabelled, sum.Changed+w.Changed
		}
		if want := (coverage.Would{Objects: 300, Unlabelled: 200, Changed: 30}); sum != want {
			t.Errorf("all would have %+v, want %+v", sum, want)
		}
		begun := time.Now()
		stops[1]() // it hands over
		if took := time.Since(begun); took > shadowLeave {
			t.Errorf("leaving took %v, in which the operator's process waits", took)
		}
		wait(5 * time.Second)
		left := s.all()[0].state.Table()
		if owned := left.Owned(s.all()[0].ID()); len(left.Members) != 2 || owned.Len() != 32 {
			t.Errorf("after one has left:\n%s", left)
		}
		stops[0]()
		stops[2]()
		look()
	})
}

func TestShadowOptions(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	g, err := group.Parse("program", []string{"a"}, "*")
	require.NoError(t, err)
	for want, create := range map[string]func() error{
		"Options.Name is empty": func() error { _, err := NewShadow(cfg, Options{}, website); return err },
		"got no config":         func() error { _, err := NewShadow(nil, Options{Name: "w"}, website); return err },
		"got no kinds":          func() error { _, err := NewShadow(cfg, Options{Name: "w"}); return err },
		"a kind without a name": func() error {
			_, err := NewShadow(cfg, Options{Name: "w"}, schema.GroupKind{Group: "g"})
			return err
		},
		"Options.Solo or Options.Group": func() error {
			_, err := NewShadow(cfg, Options{Name: "w", Group: g}, website)
			return err
		},
		"without -shadow": func() error { _, err := NewShadow(cfg, Options{Name: "w-shadow"}, website); return err },
		"only shadows have names": func() error {
			_, err := New(cfg, Options{Name: "w-shadow", Namespace: "operators"})
			return err
		},
	} {
		require.ErrorSays(t, create(), want)
	}
	s, err := NewShadow(cfg, Options{Name: "w", Namespace: "operators", Delivery: sharding.ShardSelector}, website)
	require.NoError(t, err)
	r, err := s.member()
	require.NoError(t, err)
	if r.Name().Name != "w-shadow" || r.cfg.Key != slot.KeyUID || r.opts.Delivery != sharding.Filter {
		t.Errorf("rota %s by %v with %v", r.Name(), r.cfg.Key, r.opts.Delivery)
	}
}

// Whatever keeps a shadow from going on, the operator's manager does not hear of it.
func TestShadowNeverEndsTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow, err := NewShadow(&rest.Config{Host: "https://127.0.0.1:1"},
			Options{Name: "website", Namespace: "operators", Logger: logr.Discard()}, website)
		require.NoError(t, err)
		tries := 0
		shadow.made = func(r *Engine) {
			tries++
			r.rest, r.setup.ran = nil, true // Run returns an error at once
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*shadowRetry-time.Second)
		defer cancel()
		if err := shadow.Start(ctx); err != nil {
			t.Errorf("Start: %v", err)
		}
		if tries != 10 {
			t.Errorf("%d tries in 10 minutes, want one a minute", tries)
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || shadow.NeedLeaderElection() {
			t.Error("it ended early, or runs on the leader only")
		}
	})
}

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
		require.NoError(t, err)
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
		log.wants(t, 2, "panic: no member", "shadow_test.go")
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
			require.NoError(t, err)
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
			require.NoError(t, <-ended)
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
		require.NoError(t, err)
		var made *Engine
		shared, reports := memory.New(), newSharedReports()
		shadow.made = func(r *Engine) {
			r.store, r.reports, r.rest, made = shared.Client(nil), reports, nil, r
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, shadow.Start(ctx))
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
