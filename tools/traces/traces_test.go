package traces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// patience is many times what anything here takes.
const patience = 5 * time.Minute

// replica is a member in this process, with a provider of its own as in a process of its own.
type replica struct {
	*rota.Rota
	t        *testing.T
	pod      string
	exporter *tracetest.InMemoryExporter
	provider *trace.TracerProvider
	leave    context.CancelFunc
	done     chan error
}

func start(t *testing.T, cfg *rest.Config, pod string) *replica {
	t.Helper()
	m := &replica{t: t, pod: pod, exporter: tracetest.NewInMemoryExporter(), done: make(chan error, 1)}
	m.provider = trace.NewTracerProvider(trace.WithBatcher(m.exporter))
	var err error
	m.Rota, err = rota.New(cfg, rota.Options{
		Name: "secrets", Namespace: "default", Identity: rota.Identity{Pod: pod}, Slots: 64,
		LeaseDuration: 10 * time.Second, TracerProvider: m.provider,
	})
	check(t, err)
	client, err := kubernetes.NewForConfig(m.WrapConfig(cfg))
	check(t, err)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer, err := rota.ShareInformer(m.Rota, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		client.CoreV1().Secrets(metav1.NamespaceAll))
	check(t, err)
	queue, err := rota.NewQueue(m.Rota, "secrets", informer,
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()))
	check(t, err)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(secret any) {
		if s, ok := secret.(*corev1.Secret); ok {
			queue.Add(cache.MetaObjectToName(s))
		}
	}})
	check(t, err)
	check(t, m.Duty("mail", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}))
	ctx, leave := context.WithCancel(t.Context())
	m.leave = leave
	sync := queue.Admit(func(context.Context, cache.ObjectName) error { return nil })
	go func() {
		m.done <- m.Work(ctx, func(ctx context.Context) {
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			context.AfterFunc(ctx, queue.ShutDown)
			for name, shutdown := queue.Get(); !shutdown; name, shutdown = queue.Get() {
				if err := sync(ctx, name); err != nil {
					t.Error(err)
				}
				queue.Done(name)
			}
		})
	}()
	return m
}

// stop has the replica leave, and returns the spans that it sent.
func (m *replica) stop() tracetest.SpanStubs {
	m.t.Helper()
	m.leave()
	check(m.t, <-m.done)
	check(m.t, m.provider.ForceFlush(context.WithoutCancel(m.t.Context())))
	return m.exporter.GetSpans()
}

// TestHandoversAreTraced: three members join one after the other and leave again. Each handover is one trace, with spans
// of both members that took part, in the order of the phases.
func TestHandoversAreTraced(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, cp.Stop()) })
	cfg := cp.Config()
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	check(t, err)
	for n := range 40 {
		_, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("private-%d", n)},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	var members []*replica
	settled := func() {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for begun := time.Now(); ; <-tick.C {
			open, fewest := 0, 64
			for _, m := range members {
				s := m.Status()
				open += s.Open.Len()
				fewest = min(fewest, s.Owned.Len())
				if !s.Coming.Empty() || !s.Going.Empty() {
					fewest = 0
				}
			}
			if open == 64 && fewest >= 64/len(members)-1 {
				return
			}
			if time.Since(begun) > patience {
				t.Fatalf("after %v %d slots are open, and a member has %d", patience, open, fewest)
			}
		}
	}
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		members = append(members, start(t, cfg, pod))
		settled()
	}
	ids := map[string]string{} // names of Pods by IDs of members
	for _, m := range members {
		ids[m.ID()] = m.pod
	}
	given := members[1].Status().Owned
	spans := map[string]tracetest.SpanStubs{"web-1": members[1].stop()}
	members = slices.Delete(members, 1, 2)
	settled()
	for _, m := range members {
		spans[m.pod] = m.stop() // the last one leaves its slots to nobody
	}

	traces := map[oteltrace.TraceID][]span{}
	for pod, all := range spans {
		for _, s := range all {
			if s.InstrumentationScope.Name != "github.com/rota-dev/rota" {
				t.Errorf("scope %q", s.InstrumentationScope.Name)
			}
			traces[s.SpanContext.TraceID()] = append(traces[s.SpanContext.TraceID()], span{s, pod, attributes(s)})
		}
	}
	var gone slot.Set
	handed, duties := map[string]int{}, 0
	for id, all := range traces {
		h := handover(t, id, all, ids)
		if h["rota.cause"] != "handed" {
			continue
		}
		if h["rota.duty"] != "" {
			duties++
			continue
		}
		route := ids[h["rota.from"]] + ">" + ids[h["rota.to"]]
		handed[route]++
		if ids[h["rota.from"]] == "web-1" && h["rota.to"] != "" {
			set, err := slot.ParseSet(h["rota.slots"])
			check(t, err)
			gone = gone.Union(set)
		}
	}
	for _, route := range []string{"web-0>web-1", "web-0>web-2", "web-1>web-2"} {
		if handed[route] == 0 {
			t.Errorf("no handover %s: %v", route, handed)
		}
	}
	if missing := given.Minus(gone); !missing.Empty() {
		t.Errorf("web-1 had slots %v when it left, and the traces of what it gave name %v", given, gone)
	}
	t.Logf("%d traces, handovers of slots %v, of duties %d", len(traces), handed, duties)
}

// span is a span of a replica.
type span struct {
	tracetest.SpanStub
	pod    string
	values map[string]string
}

func attributes(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.Emit()
	}
	return out
}

// handover checks the spans of one trace, and returns the attributes of the span of the whole handover.
func handover(t *testing.T, id oteltrace.TraceID, all []span, ids map[string]string) map[string]string {
	t.Helper()
	by := map[string]span{}
	for _, s := range all {
		if _, twice := by[s.Name]; twice {
			t.Errorf("trace %v has two spans %s", id, s.Name)
		}
		by[s.Name] = s
		if s.EndTime.Before(s.StartTime) {
			t.Errorf("trace %v: %s ends before it begins", id, s.Name)
		}
		for key, value := range s.values {
			if strings.Contains(value, "private") {
				t.Errorf("trace %v: %s has %s = %q", id, s.Name, key, value)
			}
		}
		if s.values["rota.name"] != "default/secrets" || ids[s.values["rota.member"]] != s.pod {
			t.Errorf("trace %v: %s of %s has %v", id, s.Name, s.pod, s.values)
		}
	}
	h, there := by["handover"]
	if !there {
		t.Fatalf("trace %v has only %v", id, slices.Sorted(maps.Keys(by)))
	}
	if ids[h.values["rota.to"]] != h.pod {
		t.Errorf("trace %v: %s tells of a handover to %s", id, h.pod, ids[h.values["rota.to"]])
	}
	if a := by["activate"]; a.Parent.SpanID() != h.SpanContext.SpanID() || !a.EndTime.Equal(h.EndTime) {
		t.Errorf("trace %v: activate is not the end of the handover: %v, %v", id, a, h)
	}
	if h.values["rota.cause"] != "handed" {
		return h.values
	}
	if w := by["warm"]; w.Parent.SpanID() != h.SpanContext.SpanID() || !w.StartTime.Equal(h.StartTime) {
		t.Errorf("trace %v: warm is not the beginning of the handover: %v, %v", id, w, h)
	}
	for _, name := range []string{"drain", "transfer"} {
		s, there := by[name]
		if !there {
			t.Errorf("trace %v of %v has only %v", id, h.values, slices.Sorted(maps.Keys(by)))
			continue
		}
		if s.pod == h.pod || ids[h.values["rota.from"]] != s.pod || s.Parent.SpanID() != h.Parent.SpanID() {
			t.Errorf("trace %v: %s is of %s, its parent %v; handover is of %s, from %s, its parent %v", id, name, s.pod,
				s.Parent.SpanID(), h.pod, ids[h.values["rota.from"]], h.Parent.SpanID())
		}
		for _, key := range []string{"rota.slots", "rota.slot_count", "rota.duty", "rota.epoch", "rota.to"} {
			if s.values[key] != h.values[key] {
				t.Errorf("trace %v: %s has %s = %q, handover %q", id, name, key, s.values[key], h.values[key])
			}
		}
	}
	if !by["drain"].EndTime.Equal(by["transfer"].StartTime) || by["activate"].EndTime.Before(by["drain"].EndTime) {
		t.Errorf("trace %v: drain %v-%v, transfer from %v, activate until %v", id, by["drain"].StartTime, by["drain"].EndTime,
			by["transfer"].StartTime, by["activate"].EndTime)
	}
	return h.values
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
