package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// gathered returns the families of a member's metrics by name.
func gathered(t *testing.T, r *Engine) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r.Collector()))
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// samples returns how many samples a histogram has with the value of its label, and their sum.
func samples(t *testing.T, r *Engine, name, value string) (count uint64, sum float64) {
	t.Helper()
	for _, m := range gathered(t, r)[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetValue() == value {
				return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, value)
	return 0, 0
}

// What handovers leave in the metrics: of the first start, of a join, and of a crash.
func TestHandoverMetrics(t *testing.T) {
	inLab(t, func(l *lab) {
		for n := range 300 {
			if _, err := l.objects.Create(t.Context(), types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("object-%d", n)},
				nil); err != nil {
				t.Fatal(err)
			}
		}
		a := l.start("a")
		l.wait(time.Minute)
		if n, sum := samples(t, a.Engine, "rota_handover_stall_seconds", "assigned"); n != 256 || sum <= 0 {
			t.Errorf("%d slots were assigned, after %v s in all", n, sum)
		}
		if n, _ := samples(t, a.Engine, "rota_handover_phase_seconds", "drain"); n != 0 {
			t.Errorf("%d slots were drained though nobody had them", n)
		}
		a.want("alone", "rota_objects", `kind="ConfigMap"`, 300)
		a.want("alone", "rota_imbalance_ratio", `of="slots"`, 1)
		if v, _ := a.value("rota_plans_total", `outcome="done"`); v < 1 {
			t.Errorf("a made %v plans, want that by which it got its slots", v)
		}
		plansBefore, _ := a.value("rota_plans_total", `outcome="done"`)
		b := l.start("b", func(o *Options) { o.Identity.Build = "v1" })
		l.wait(2 * time.Minute)
		if n, sum := samples(t, b.Engine, "rota_handover_phase_seconds", "drain"); n != 128 || sum <= 0 {
			t.Errorf("%d slots were drained for b in %v s, want 128 slots", n, sum)
		}
		if n, _ := samples(t, b.Engine, "rota_handover_stall_seconds", "handed"); n != 128 {
			t.Errorf("%d slots were handed to b, want 128", n)
		}
		byA, _ := a.value("rota_plans_total", `outcome="done"`)
		if byB, _ := b.value("rota_plans_total", `outcome="done"`); byA+byB <= plansBefore {
			t.Errorf("a and b made %v and %v plans, before b joined there were %v", byA, byB, plansBefore)
		}
		mine, _ := a.value("rota_objects", `kind="ConfigMap"`)
		others, _ := b.value("rota_objects", `kind="ConfigMap"`)
		if mine+others != 300 || mine == 0 || others == 0 {
			t.Errorf("a has %v objects and b %v, of 300", mine, others)
		}
		a.want("with b", "rota_imbalance_ratio", `of="slots"`, 1)
		if v, ok := a.value("rota_imbalance_ratio", `of="objects"`); !ok || v != 2*max(mine, others)/300 {
			t.Errorf("the imbalance of objects is %v, with %v and %v", v, mine, others)
		}
		b.absent("without the scrub duty", "rota_imbalance_ratio", `of="slots"`)
		b.crash()
		until := func(what string, ok func() bool) {
			t.Helper()
			for range 2000 {
				if ok() {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Fatalf("not within 100 s: %s", what)
		}
		until("the oldest handover shows the fence wait", func() bool {
			v, _ := a.value("rota_handover_oldest_seconds", "")
			return v > 1
		})
		l.wait(time.Minute)
		a.want("at the end", "rota_handover_oldest_seconds", "", 0)
		// The rota's own duty was the first one: new duties wait as those of the dead do (rule R18).
		if n, sum := samples(t, a.Engine, "rota_handover_stall_seconds", "expelled"); n != 129 ||
			sum < 128*a.cfg.FenceDelay.Seconds() {
			t.Errorf("%d slots came from the dead, after %v s in all", n, sum)
		}
	})
}

// What a worker is busy with is the load of its slot and of the member, also before it is done.
func TestLoadOfAMember(t *testing.T) {
	inLab(t, func(l *lab) {
		a := l.start("a")
		l.wait(time.Minute)
		a.want("without keys", "rota_load", "", 0)
		for _, name := range []string{"lasts", "lasts-too"} {
			key := types.NamespacedName{Namespace: "a", Name: name}
			if _, ok := a.controller.Admit(l.t.Context(), key); !ok {
				t.Fatal("not admitted")
			}
			defer a.controller.Done(key)
		}
		serial := func() uint64 {
			reports, err := l.reports.Read(l.t.Context())
			if err != nil || len(reports) != 1 {
				t.Fatalf("%d reports, error %v", len(reports), err)
			}
			return reports[0].Serial
		}
		before := serial()
		l.wait(10 * time.Minute)
		if n := serial() - before; n > 82 { // every half lease
			t.Errorf("%d reports in ten minutes, because loads change: want no more than at rest", n)
		}
		all, _ := a.value("rota_load", "")
		hottest, _ := a.value("rota_load_hottest_slot", "")
		if math.Abs(all-2) > 0.02 || math.Abs(hottest-1) > 0.02 {
			t.Errorf("load %v, of the hottest slot %v: want 2 and 1", all, hottest)
		}
		if workers, ok := a.account.Report("a", nil).Load(); !ok || math.Abs(workers-2) > 0.02 {
			t.Errorf("the report says %v workers, known: %t, want 2", workers, ok)
		}
	})
}

func TestPlans(t *testing.T) {
	members := []table.Member{{ID: "a"}, {ID: "b"}}
	tab := func(runs ...table.Run) *table.Table {
		return &table.Table{Slots: 4, Members: members, Runs: runs}
	}
	all := rangeOf(0, 3)
	old := tab(table.Run{Slots: all, Owner: "a"})
	for name, test := range map[string]struct {
		old, next *table.Table
		want      bool
	}{
		"a move is planned":       {old, tab(table.Run{Slots: rangeOf(0, 1), Owner: "a"}, table.Run{Slots: rangeOf(2, 3), Owner: "a", Next: "b"}), true},
		"slots of nobody":         {tab(table.Run{Slots: all}), old, true},
		"slots of a dead member":  {tab(table.Run{Slots: all, Owner: "dead"}), old, true},
		"a handover":              {tab(table.Run{Slots: all, Owner: "a", Next: "b", Ready: true}), tab(table.Run{Slots: all, Owner: "b"}), false},
		"a move that is ready":    {tab(table.Run{Slots: all, Owner: "a", Next: "b"}), tab(table.Run{Slots: all, Owner: "a", Next: "b", Ready: true}), false},
		"a move that is dropped":  {tab(table.Run{Slots: all, Owner: "a", Next: "b"}), old, false},
		"somebody settles":        {tab(table.Run{Slots: all, Owner: "a", Unsettled: true}), old, false},
		"slots that nobody takes": {old, tab(table.Run{Slots: all}), false},
	} {
		if got := plans(test.old, test.next); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Metrics have conventional names, units and texts.
func TestMetricsAreConventional(t *testing.T) {
	inLab(t, func(l *lab) {
		a := l.start("a")
		l.wait(time.Minute)
		var families []*dto.MetricFamily
		for _, f := range gathered(t, a.Engine) {
			families = append(families, f)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		require.NoError(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func rangeOf(first, last slot.Slot) slot.Range { return slot.Range{First: first, Last: last} }

// table is the present one.
func (l *lab) table() *table.Table {
	l.t.Helper()
	s, err := l.memory.Client(nil).ReadTable(l.t.Context())
	require.NoError(l.t, err)
	return s.Table
}

// owner is the member that has an object's slot.
func (l *lab) owner(key types.NamespacedName) string {
	return l.table().At(slot.Count(slot.DefaultCount).Of(slot.KeyName.Hash(key.Namespace, key.Name, ""))).Owner
}

// Rule R21, as members run in production: the objects that keep a's workers busy are shared with b, of which it knew
// nothing. A member that shares by number ends that, and is named.
func TestByLoad(t *testing.T) {
	inLab(t, func(l *lab) {
		byLoad := func(o *Options) { o.ByLoad = true }
		a, b := l.start("a", byLoad), l.start("b", byLoad)
		l.wait(time.Minute)
		var busy []types.NamespacedName
		for n := 0; len(busy) < 6; n++ {
			if key := (types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("busy-%d", n)}); l.owner(key) == a.ID() {
				busy = append(busy, key)
			}
		}
		for _, key := range busy {
			go func() {
				for {
					for _, m := range []*labMember{a, b} {
						if _, ok := m.controller.Admit(l.t.Context(), key); ok {
							time.Sleep(2 * time.Second)
							m.controller.Done(key)
						}
					}
					select {
					case <-l.over:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}()
		}
		held := func() (n int) {
			for _, key := range busy {
				if l.owner(key) == a.ID() {
					n++
				}
			}
			return n
		}
		if n := held(); n != 6 {
			t.Fatalf("a has %d of the busy slots at first, want 6", n)
		}
		l.wait(5 * time.Minute)
		if n := held(); n != 3 {
			t.Errorf("a has %d of the busy slots after 5 minutes, want 3", n)
		}
		counts := l.table().Counts()
		if n := counts[a.ID()]; n != 125 && n != 131 {
			t.Errorf("a has %d slots, want 128 without those of 3 busy objects", n)
		}
		if l.events()["LoadsNotEven"] != 0 {
			t.Error("members that all share by load are told to differ")
		}
		l.start("c")
		l.wait(20 * time.Minute)
		// Who plans first is a matter of IDs. If it is c, it knows of no loads, and the difference is told by rule R14.
		if n := l.events()["LoadsNotEven"]; n > 1 || n == 0 && l.events()["SetupDiffers"] == 0 {
			t.Errorf("events %v, want one LoadsNotEven, or SetupDiffers: c shares by number", l.events())
		}
	})
}

// metricOf returns the value of the metric's series with all of these labels, given as name, value, …; false where
// there is none.
func metricOf(t *testing.T, r *Engine, name string, labels ...string) (float64, bool) {
	t.Helper()
series:
	for _, m := range gathered(t, r)[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		for i := 0; i < len(labels); i += 2 {
			if has[labels[i]] != labels[i+1] {
				continue series
			}
		}
		return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
	}
	return 0, false
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// runInformer runs an informer of a kind that is sharded, of an API server in memory, until the test ends.
func runInformer(t *testing.T, r *Engine, kind schema.GroupKind,
	m *deliverytest.Memory,
) (cache.SharedIndexInformer, *deliverytest.Faulty) {
	t.Helper()
	faults := deliverytest.NewFaulty(m.ListWatch("", ""), false)
	inf := r.share.NewInformer(kind, faults, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		t.Fatal("no sync")
	}
	return inf, faults
}

func TestFailingRequestsShow(t *testing.T) {
	r := testRota(t)
	kind := schema.GroupKind{Kind: "ConfigMap"}
	require.NoError(t, r.share.Shard(kind))
	_, faults := runInformer(t, r, kind, deliverytest.NewMemory())
	seconds := func() float64 {
		v, ok := metricOf(t, r, "rota_delivery_failing_seconds", "kind", "ConfigMap", "request", "watch")
		if !ok {
			t.Fatal("there is no series of watches of ConfigMaps")
		}
		return v
	}
	if v := seconds(); v != 0 {
		t.Errorf("watches have failed for %v s before any did", v)
	}
	faults.RefuseWatches(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("injected")))
	until(t, "the metric shows that watches fail", func() bool { return seconds() > 0 })
	until(t, "so does the status", func() bool {
		f := r.Status().Refused
		return len(f) == 1 && f[0].Request == feed.RequestWatch && apierrors.IsForbidden(f[0].Err) && f[0].Kind == kind
	})
	faults.RefuseWatches(nil)
	until(t, "the metric shows that watches work", func() bool { return seconds() == 0 })
	if f := r.Status().Refused; len(f) > 0 {
		t.Errorf("failing: %v", f)
	}
}
