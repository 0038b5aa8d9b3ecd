package ctrlrt_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/test/controlplane"
)

// Sizes of the two tests below, which variables of the environment of these names raise to what one meets in clusters.
var (
	timerObjects  = fromEnv("TIMER_OBJECTS", 120, strconv.Atoi)
	timerInterval = fromEnv("TIMER_INTERVAL", 6*time.Second, time.ParseDuration)
	longReconcile = fromEnv("LONG_RECONCILE", 4*time.Second, time.ParseDuration)
)

func fromEnv[T any](name string, otherwise T, parse func(string) (T, error)) T {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return value
}

// waits are how long things waited for their reconciles.
type waits struct {
	mu  sync.Mutex
	all []time.Duration
}

func (w *waits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, d)
}

// take returns what was added since the last call, sorted.
func (w *waits) take() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.all
	w.all = nil
	slices.Sort(out)
	return out
}

// percentile returns the value that p percent of sorted values do not exceed, 0 of none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// roll replaces each of the replicas by a new one, one after the other, as a Deployment with maxSurge 1 does. It
// returns the new ones and how long the slowest took to leave.
func roll(t *testing.T, old []*replica, start func(pod string) *replica) (now []*replica, slowest time.Duration) {
	t.Helper()
	now = old
	for i := range old {
		now = append(now[1:len(now):len(now)], start(fmt.Sprintf("new-%d", i)))
		eventually(t, time.Minute, func() string {
			if s := now[len(now)-1].Rota().Status(); s.Open.Empty() {
				return fmt.Sprintf("new-%d has no slot open", i)
			}
			return ""
		})
		begun := time.Now()
		old[i].leave(t)
		slowest = max(slowest, time.Since(begun))
	}
	return now, slowest
}

// measures skips a test that asserts real time: beside other work it says nothing.
func measures(t *testing.T) {
	t.Helper()
	if os.Getenv("SLOW") == "" {
		t.Skip("it measures: make check WHAT=slow")
	}
}

// An operator refreshes each of its objects when so much time has passed since its last refresh, which it writes into
// the object, with one worker per member. In a rollout no refresh is lost, none is early, and hardly any is late.
func TestRefreshesInARollout(t *testing.T) {
	measures(t)
	t.Parallel()
	const refreshed = "test.rota.dev/refreshed"
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var late, early waits
	refresh := func(ctx context.Context, c client.Client, req reconcile.Request) (reconcile.Result, error) {
		if !strings.HasPrefix(req.Name, "object-") {
			return reconcile.Result{}, nil // the rota's table
		}
		var cm corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
			return reconcile.Result{}, err
		}
		now := time.Now()
		if last, err := time.Parse(time.RFC3339Nano, cm.Annotations[refreshed]); err == nil {
			if left := time.Until(last.Add(timerInterval)); left > 0 {
				return reconcile.Result{RequeueAfter: left}, nil
			}
			late.add(now.Sub(last.Add(timerInterval)))
		}
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, cm.ResourceVersion, refreshed,
			now.Format(time.RFC3339Nano))
		if err := c.Patch(ctx, &cm, client.RawPatch(types.MergePatchType, patch)); err != nil {
			early.add(0) // a conflict: its cache is behind what was refreshed, or the slot is gone
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: timerInterval}, nil
	}
	j := newJournal()
	start := func(pod string) *replica {
		return startReplica(t, namespace, pod, j, replicaOptions{reconcile: refresh, workers: 1, lease: 15 * time.Second})
	}
	members := []*replica{start("a"), start("b"), start("c")}
	eventually(t, time.Minute, settled(members...))
	begun := time.Now()
	for i := range timerObjects { // spread over an interval, so that what is due is, too
		if err := c.Create(t.Context(), configMap(namespace, fmt.Sprintf("object-%d", i), "1")); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Until(begun.Add(timerInterval * time.Duration(i+1) / time.Duration(timerObjects))))
	}
	eventually(t, time.Minute, settled(members...))
	round := func(what string) []time.Duration {
		got, failed := late.take(), early.take()
		t.Logf("%s: %d refreshes of %d objects, each due every %v; late: median %v, p99 %v, most %v; %d conflicts", what,
			len(got), timerObjects, timerInterval,
			percentile(got, 50), percentile(got, 99), percentile(got, 100), len(failed))
		return got
	}
	late.take()
	early.take()
	<-time.After(timerInterval)
	quiet := percentile(round("quiet"), 99)
	rollout := time.Now()
	members, slowest := roll(t, members, start)
	took := time.Since(rollout)
	<-time.After(timerInterval) // what was due while slots moved
	got := round(fmt.Sprintf("rollout of %.1f s, slowest leaver %.1f s", took.Seconds(), slowest.Seconds()))
	if want := int((took+timerInterval)/timerInterval) * timerObjects * 8 / 10; len(got) < want {
		t.Errorf("%d refreshes, want at least %d", len(got), want)
	}
	// What is due while its slot moves is as late as the handover takes, which is seconds on a machine that is busy. That
	// must not hold up the others.
	for p, bound := range map[int]time.Duration{90: 2 * time.Second, 99: 10 * time.Second} {
		if by := percentile(got, p); by > max(bound, 10*quiet) {
			t.Errorf("refreshes were late by %v (p%d), before the rollout by %v (p99)", by, p, quiet)
		}
	}
	eventually(t, time.Minute, settled(members...))
	if j.err != nil {
		t.Error(j.err)
	}
}

// Every twentieth object takes long to be reconciled, again and again. That holds up neither the others of its slot,
// when a member joins and in a rollout, nor those that leave.
func TestLongReconcilesInARollout(t *testing.T) {
	measures(t)
	t.Parallel()
	const objects, each = 120, 20
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var stalls waits
	var last sync.Map // the value that was last seen, by name
	work := func(ctx context.Context, c client.Client, req reconcile.Request) (reconcile.Result, error) {
		if strings.HasPrefix(req.Name, "long") {
			select {
			case <-time.After(longReconcile):
			case <-ctx.Done():
				return reconcile.Result{}, context.Cause(ctx)
			}
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}
		var cm corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
			return reconcile.Result{}, err
		}
		// New owners reconcile everything: what was seen before did not wait.
		if before, seen := last.Swap(req.Name, cm.Data["value"]); seen && before == cm.Data["value"] {
			return reconcile.Result{}, nil
		}
		if at, err := time.Parse(time.RFC3339Nano, cm.Data["value"]); err == nil {
			stalls.add(time.Since(at))
		}
		return reconcile.Result{}, nil
	}
	j := newJournal()
	start := func(pod string) *replica {
		return startReplica(t, namespace, pod, j, replicaOptions{reconcile: work, workers: objects / each,
			lease: 15 * time.Second})
	}
	for i := range objects {
		name := fmt.Sprintf("object-%d", i)
		if i%each == 0 {
			name = fmt.Sprintf("long-%d", i)
		}
		if err := c.Create(t.Context(), configMap(namespace, name, "")); err != nil {
			t.Fatal(err)
		}
	}
	members := []*replica{start("a"), start("b"), start("c")}
	eventually(t, time.Minute, settled(members...))
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	defer changes.Wait()
	defer cancel()
	changes.Go(func() { // 50 changes a second
		for i := 0; ; i = (i + 1) % objects {
			if i%each == 0 {
				continue
			}
			patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, time.Now().Format(time.RFC3339Nano))
			err := c.Patch(ctx, configMap(namespace, fmt.Sprintf("object-%d", i), ""),
				client.RawPatch(types.MergePatchType, patch))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	})
	round := func(what string, before time.Duration) time.Duration {
		got := stalls.take()
		t.Logf("%s: %d changes of objects beside reconciles of %v; waited: median %v, p99 %v, most %v", what, len(got),
			longReconcile,
			percentile(got, 50), percentile(got, 99), percentile(got, 100))
		p99 := percentile(got, 99)
		if p99 == 0 || before > 0 && p99 > max(longReconcile*3/4, 10*before) { // behind a long one they wait for it
			t.Errorf("%s: changes waited %v (p99) for what is beside them, before that %v", what, p99, before)
		}
		return p99
	}
	<-time.After(3 * time.Second)
	quiet := round("quiet", 0)
	members = append(members, start("d"))
	eventually(t, longReconcile+time.Minute, settled(members...))
	round("join", quiet)
	members, slowest := roll(t, members, start)
	round(fmt.Sprintf("rollout, slowest leaver %.1f s", slowest.Seconds()), quiet)
	if slowest > 28*time.Second {
		t.Errorf("a member took %v to leave: Pods have 30 s", slowest)
	}
	eventually(t, longReconcile+time.Minute, settled(members...))
	if j.err != nil {
		t.Error(j.err)
	}
}
