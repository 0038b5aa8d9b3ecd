package engine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// TestMain is for tests that have simulated time.
func TestMain(m *testing.M) {
	elapsed.Simulated()
	os.Exit(m.Run())
}

// lab is a rota in memory, in the simulated time of a synctest bubble, whose metrics are scraped every scrapePeriod.
type lab struct {
	t          *testing.T
	memory     *memory.Store
	reports    *sharedReports
	unreadable bool // members that start cannot read reports
	members    []*labMember
	objects    *deliverytest.Memory // of the kind that is sharded
	gadgets    *deliverytest.Memory // of another kind
	// worker returns what takes a member's keys, as a work queue does; nil: each is done with at once.
	worker func(*labMember) func([]types.NamespacedName)
	// format is the newest table format that members read which start; 0: as they do.
	format int
	// setup is called with each member before it runs; nil: nothing is.
	setup func(*labMember)
	// over is closed at the end.
	over chan struct{}
	// series are the samples by series, and scrape: what is missing was not there.
	series  map[string]map[int]float64
	scrapes int
}

const scrapePeriod = 15 * time.Second

var (
	labKind    = schema.GroupKind{Kind: "ConfigMap"}
	gadgetKind = schema.GroupKind{Group: "example.com", Kind: "Gadget"}
)

type labMember struct {
	*Engine
	pod        string
	lab        *lab
	controller *controllers.Controller
	informer   cache.SharedIndexInformer
	requests   *deliverytest.Faulty // of the informer
	work       func([]types.NamespacedName)
	fault      atomic.Pointer[func(op memory.Op) error] // nil: none
	scraped    bool
	crashed    atomic.Bool
	idle       atomic.Bool // its workers do nothing
	leave      context.CancelFunc
	done       chan error
}

// endless is longer than any test takes by its own clock. What waits for something that does not come would wait for ever:
// simulated time goes on as long as anything has a timer.
const endless = 48 * time.Hour

// inLab runs a test in a lab, and ends the members that are left.
func inLab(t *testing.T, test func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, memory: memory.New(), reports: newSharedReports(), objects: deliverytest.NewMemory(),
			gadgets: deliverytest.NewMemory(), series: map[string]map[int]float64{}, over: make(chan struct{})}
		defer time.AfterFunc(endless, func() { panic(fmt.Sprintf("%s goes on after %v of its time", t.Name(), endless)) }).Stop()
		defer func() {
			defer close(l.over)
			for _, m := range l.members {
				m.fault.Store(nil)
				m.leave()
			}
			for _, m := range l.members {
				<-m.done
			}
		}()
		test(l)
	})
}

// order changes the table as people do.
func (l *lab) order(change func(*table.Table) error) {
	l.t.Helper()
	_, changed, err := orders.Give(l.t.Context(), l.memory.Client(nil),
		func(context.Context) (map[string]uint64, error) { return nil, nil }, change)
	if err != nil || !changed {
		l.t.Fatalf("the table was changed: %t, %v", changed, err)
	}
}

// start starts a member.
func (l *lab) start(pod string, change ...func(*Options)) *labMember {
	l.t.Helper()
	return l.startOf(pod, []schema.GroupKind{labKind}, change...)
}

// startOf starts a member that shards these kinds. Its controller, informer and requests are those of the last one.
func (l *lab) startOf(pod string, kinds []schema.GroupKind, change ...func(*Options)) *labMember {
	l.t.Helper()
	o := Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: pod, Build: "v1"},
		Logger: funcr.New(func(string, string) {}, funcr.Options{})}
	for _, f := range change {
		f(&o)
	}
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, o)
	require.NoError(l.t, err)
	m := &labMember{Engine: r, pod: pod, lab: l, scraped: true, done: make(chan error, 1)}
	r.store = l.memory.Client(func(_ context.Context, op memory.Op, after bool) error {
		time.Sleep(time.Millisecond) // requests take time
		fault := m.fault.Load()
		if fault == nil || after {
			return nil
		}
		return (*fault)(op)
	})
	if l.format > 0 {
		r.cfg.Self.MaxFormat = l.format
	}
	r.reports = labReports{l.reports, &m.crashed}
	if l.unreadable {
		r.reports = unreadable{l.reports}
	}
	inf, stop := context.WithCancel(l.t.Context())
	var running sync.WaitGroup
	for _, kind := range kinds {
		objects := l.objects
		if kind == gadgetKind {
			objects = l.gadgets
		}
		require.NoError(l.t, r.share.Shard(kind))
		m.requests = deliverytest.NewFaulty(objects.ListWatch("", ""), false)
		m.informer = r.share.NewInformer(kind, m.requests, &corev1.ConfigMap{}, deliverytest.Never, nil)
		// client-go's own waits by a clock that it shares with what is not in the bubble.
		require.NoError(l.t, m.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
		name := "test"
		if kind != labKind {
			name = kind.Kind
		}
		var controller *controllers.Controller
		controller, err = r.newTestController(name, kind, func(keys []types.NamespacedName, _ work.Priority) {
			if m.work != nil {
				m.work(keys)
				return
			}
			for _, key := range keys { // each is worked on at once
				if controller.Add(key) && !m.idle.Load() {
					controller.Take(key)
					controller.Done(key)
				}
			}
		})
		require.NoError(l.t, err)
		m.controller = controller
		if l.worker != nil {
			m.work = l.worker(m)
			changed := func(obj any) {
				if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
					m.work([]types.NamespacedName{{Namespace: key.Namespace, Name: key.Name}})
				}
			}
			if _, err := m.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed,
				DeleteFunc: changed}); err != nil {
				l.t.Fatal(err)
			}
		}
		m.controller.Started()
		informer := m.informer
		running.Go(func() { informer.RunWithContext(inf) })
	}
	if l.setup != nil {
		l.setup(m)
	}
	ctx, leave := context.WithCancel(l.t.Context())
	m.leave = leave
	go func() {
		err := r.Run(ctx)
		stop()
		running.Wait()
		m.done <- err
	}()
	l.members = append(l.members, m)
	return m
}

// stop has a member leave, and waits for it.
func (m *labMember) stop() {
	m.lab.t.Helper()
	m.leave()
	require.NoError(m.lab.t, <-m.done)
	m.done <- nil
	m.scraped = false
}

// crash is a process that ends without a word: nothing that it sends arrives, and nobody scrapes it.
func (m *labMember) crash() {
	m.cutOff()
	m.crashed.Store(true)
	m.scraped = false
}

// labReports are those that a member makes until it crashes.
type labReports struct {
	*sharedReports
	crashed *atomic.Bool
}

func (r labReports) Publish(ctx context.Context, report *coverage.Report, lease types.UID) error {
	if r.crashed.Load() {
		return memory.ErrLost
	}
	return r.sharedReports.Publish(ctx, report, lease)
}

func (r labReports) Withdraw(ctx context.Context, member string) error {
	if r.crashed.Load() {
		return memory.ErrLost
	}
	return r.sharedReports.Withdraw(ctx, member)
}

// cutOff takes the API server away from the member.
func (m *labMember) cutOff() { m.fail(func(memory.Op) error { return memory.ErrLost }) }

// fail has the member's requests to the store answered by a function.
func (m *labMember) fail(fault func(op memory.Op) error) { m.fault.Store(&fault) }

// stick begins 20 reconciles of a member that do not end by themselves, and returns their keys.
func (l *lab) stick(m *labMember) []types.NamespacedName {
	var stuck []types.NamespacedName
	for n := range 20 {
		key := types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("stuck-%d", n)}
		if _, ok := m.controller.Admit(l.t.Context(), key); !ok {
			l.t.Fatal("not admitted")
		}
		stuck = append(stuck, key)
	}
	return stuck
}

// wait lets time pass, and scrapes.
func (l *lab) wait(d time.Duration) {
	l.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(scrapePeriod)
		synctest.Wait()
		l.scrape()
	}
}

func (l *lab) scrape() {
	l.t.Helper()
	for _, m := range l.members {
		if !m.scraped {
			continue
		}
		for name, value := range m.scrape() {
			name = strings.Replace(name, "{", fmt.Sprintf("{pod=%q,", m.pod), 1)
			if l.series[name] == nil {
				l.series[name] = map[int]float64{}
			}
			l.series[name][l.scrapes] = value
		}
	}
	l.scrapes++
}

// scrape returns all metrics of a member, by their names with labels.
func (m *labMember) scrape() map[string]float64 {
	m.lab.t.Helper()
	out := map[string]float64{}
	for name, f := range gathered(m.lab.t, m.Engine) {
		for _, s := range f.GetMetric() {
			var labels []string
			for _, p := range s.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", p.GetName(), p.GetValue()))
			}
			by := "{" + strings.Join(labels, ",") + "}"
			if h := s.GetHistogram(); h != nil {
				out[name+"_count"+by], out[name+"_sum"+by] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[name+by] = s.GetGauge().GetValue() + s.GetCounter().GetValue()
		}
	}
	return out
}

// value returns one metric; labels are those beside rota, such as `state="open"`.
func (m *labMember) value(name string, labels ...string) (v float64, there bool) {
	m.lab.t.Helper()
	all := []string{fmt.Sprintf("rota=%q", "operators/website")}
	for _, label := range labels {
		if label != "" {
			all = append(all, label)
		}
	}
	slices.Sort(all)
	v, there = m.scrape()[name+"{"+strings.Join(all, ",")+"}"]
	return v, there
}

// want fails where a metric is not as it should be.
func (m *labMember) want(when, name, labels string, want float64) {
	m.lab.t.Helper()
	if v, there := m.value(name, labels); !there || v != want {
		m.lab.t.Errorf("%s: %s: %s{%s} is %v, there: %t; want %v", when, m.pod, name, labels, v, there, want)
	}
}

// absent fails where a metric is there.
func (m *labMember) absent(when, name, labels string) {
	m.lab.t.Helper()
	if v, there := m.value(name, labels); there {
		m.lab.t.Errorf("%s: %s: %s{%s} is %v, want it not to be there", when, m.pod, name, labels, v)
	}
}

// events returns how often each reason was told.
func (l *lab) events() map[string]int {
	out := map[string]int{}
	for _, n := range l.memory.Notes() {
		out[n.Reason]++
	}
	return out
}

// text returns the series as Prometheus' own tests load them.
func (l *lab) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "load %v\n", scrapePeriod)
	for _, name := range slices.Sorted(maps.Keys(l.series)) {
		fmt.Fprintf(&b, "  %s", name)
		for n := range l.scrapes {
			if v, there := l.series[name][n]; there {
				fmt.Fprintf(&b, " %v", v)
			} else {
				b.WriteString(" _")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// waitingIn returns the keys in a slot that are in the queue or with a worker.
func waitingIn(c *controllers.Controller, s slot.Slot) (waiting []types.NamespacedName) {
	c.Work.With(func(k *testKeys) { waiting = k.Waiting(s) })
	return waiting
}

// undoneIn counts the keys in slots that are on their way to a reconcile.
func undoneIn(c *controllers.Controller, set slot.Set) (n int) {
	c.Work.With(func(k *testKeys) {
		for _, s := range set.Slots() {
			n += len(k.Undone(s))
		}
	})
	return n
}

type testKeys = work.Keys[types.NamespacedName, work.Flying]

// newTestController is what an adapter does.
func (r *Engine) newTestController(
	name string, kind schema.GroupKind, enqueue controllers.Enqueue,
) (*controllers.Controller, error) {
	return r.newController(name, kind, nil, enqueue)
}
