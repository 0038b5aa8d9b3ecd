package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// startMember starts a member of rota web in w's namespace, which shards ConfigMaps. end has it leave.
func (w *written) startMember(t *testing.T, pod string, change ...func(*rota.Options)) (id string, end func()) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	plane := w.plane
	o := rota.Options{
		Name: w.name, Namespace: w.namespace, Identity: rota.Identity{Pod: pod, Build: "v7"}, LeaseDuration: 6 * time.Second, Logger: logr.Discard(),
	}
	for _, f := range change {
		f(&o)
	}
	r, err := rota.New(plane.Config(), o)
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(plane.Config(), r, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err == nil {
		err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	ended := false
	end = func() {
		if !ended {
			ended = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("member %s: %v", pod, err)
			}
		}
	}
	t.Cleanup(end)
	require.Receive(t, r.Joined(), time.Minute, "member %s has not joined", pod)
	return r.ID(), end
}

// table reads the table; nil: there is none.
func (w *written) table(t *testing.T) *table.Table {
	t.Helper()
	cm, err := w.client.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), w.name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	tab, err := table.Decode(cm.Data)
	require.NoError(t, err)
	return tab
}

// until waits for a state of the table.
func (w *written) until(t *testing.T, what string, ok func(*table.Table) bool) {
	t.Helper()
	require.Eventually(t, time.Minute, func() error {
		switch tab := w.table(t); {
		case tab == nil:
			return fmt.Errorf("%s: there is no table", what)
		case !ok(tab):
			return fmt.Errorf("%s: %d move:\n%v\n%v", what, orders.Moving(tab), tab.Counts(), tab)
		}
		return nil
	})
}

// expect runs a command and looks at its exit code and output.
func (w *written) expect(t *testing.T, line string, code exitCode, words ...string) {
	t.Helper()
	got, out, errOut := w.rota(t, line)
	for _, word := range words {
		if got != code || !strings.Contains(out+errOut, word) {
			t.Errorf("rota %s: exit code %d, want %d with %q; output:\n%s%s", line, got, code, word, out, errOut)
			return
		}
	}
}

// R19 with live members: a drained member gives up all it has and gets none until it is undrained. While moves are
// paused, a member that joins gets none, and a drained one keeps what it has.
func TestOrdersToLiveMembers(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	a, _ := w.startMember(t, "web-0")
	b, _ := w.startMember(t, "web-1")
	settled := func(want map[string]int) func(*table.Table) bool {
		return func(tab *table.Table) bool {
			return orders.Moving(tab) == 0 && len(tab.Members) == len(want) && fmt.Sprint(tab.Counts()) == fmt.Sprint(want)
		}
	}
	w.until(t, "both work", settled(map[string]int{a: 128, b: 128}))

	w.expect(t, "drain web-1 --reason a-bad-node --wait", exitGood, "member "+b+" is drained; it has 128 slots", "member "+b+" has nothing left")
	w.until(t, "b is drained", settled(map[string]int{a: 256, b: 0}))
	w.expect(t, "drain "+b+" web", exitGood, "is drained already, since ", "a-bad-node")
	w.expect(t, "status", exitGood, "‼ MemberDrained "+b+": drained since ", "(a-bad-node)", "Drained")
	w.expect(t, "status -o json", exitGood, `"drain": {`, `"reason": "a-bad-node"`)
	w.expect(t, "rebalance", exitGood, "nothing to move")
	c, _ := w.startMember(t, "web-2")
	w.until(t, "b gets nothing", settled(map[string]int{a: 128, b: 0, c: 128}))

	w.expect(t, "pause --reason a-look --wait", exitGood, "moves are paused")
	w.expect(t, "pause", exitGood, "moves are paused already, since ", "a-look")
	w.expect(t, "status", exitGood, "‼ MovesPaused: moves are paused since ")
	w.expect(t, "undrain web-1", exitGood, "member "+b+" gets slots again")
	w.expect(t, "undrain "+b, exitGood, "is not drained")
	w.expect(t, "rebalance", exitFindings, "`rota resume` first")
	w.expect(t, "rebalance --dry-run", exitGood, "would move", "moves are paused")
	w.expect(t, "drain web-0 --wait", exitFindings, "moves are paused, so the member keeps its slots and duties")
	d, endD := w.startMember(t, "web-3")
	w.until(t, "d has joined", func(tab *table.Table) bool { _, ok := tab.Member(d); return ok })
	epoch := w.table(t).Epoch
	// A joiner gets its share after a second. Within three renewals of each member's Lease nothing moves.
	renewals := w.renewals(t)
	w.until(t, "they renew", func(tab *table.Table) bool {
		if !settled(map[string]int{a: 128, b: 0, c: 128, d: 0})(tab) {
			t.Fatalf("after epoch %d, although moves are paused:\n%v", epoch, tab)
		}
		now := w.renewals(t)
		for id := range renewals {
			if now[id] < renewals[id]+3 {
				return false
			}
		}
		return true
	})
	w.expect(t, "resume", exitGood, "moves resume")
	w.expect(t, "resume", exitGood, "not paused")
	w.until(t, "moves go on", func(tab *table.Table) bool {
		return orders.Moving(tab) == 0 && tab.Counts()[a] == 0 && tab.Counts()[b] >= 85 && tab.Counts()[c] >= 85 && tab.Counts()[d] >= 85
	})
	endD()
	w.until(t, "d has left", func(tab *table.Table) bool { return orders.Moving(tab) == 0 && len(tab.Members) == 3 })
	w.expect(t, "undrain web-0", exitGood, "gets slots again")
	w.until(t, "all three work", func(tab *table.Table) bool { return orders.Moving(tab) == 0 && tab.Counts()[a] >= 85 })

	events, err := w.client.EventsV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	told := map[string]string{}
	for _, e := range events.Items {
		told[e.Reason] += e.Note + "\n"
	}
	for reason, want := range map[string]string{
		eventDrained:   "member " + b + " gives its slots and duties to others, and gets none, requested by ",
		eventUndrained: "member " + b + " gets slots", eventPaused: ": a-look", eventResumed: "resume",
	} {
		if !strings.Contains(told[reason], want) {
			t.Errorf("events %s: %q, want %q", reason, told[reason], want)
		}
	}
}

// renewals returns when each Lease was renewed last, in units of the members' RetryPeriod.
func (w *written) renewals(t *testing.T) map[string]int64 {
	t.Helper()
	leases, err := w.client.CoordinationV1().Leases(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "rota.dev/rota=web"})
	require.NoError(t, err)
	out := map[string]int64{}
	for _, l := range leases.Items {
		out[l.Name] = l.Spec.RenewTime.UnixMilli() / 800 // RetryPeriod is a fifth of two thirds of 6 s
	}
	return out
}

// Orders are refused where they make no sense, with the exit code that is documented.
func TestOrdersRefused(t *testing.T) {
	t.Parallel()
	tab := halves()
	w := writeRota(t, tab)
	w.converse(t, "orders.txt", "$LONG", strings.Repeat("x", 300))
	_, out, _ := runCommand(t.Context(), "rota", "__complete", "drain", "-n", w.namespace, "--kubeconfig", controlplane.For(t).Kubeconfig(), "")
	if !strings.HasPrefix(out, "web-0-a\nweb-1-b\n") {
		t.Errorf("completion: %s", out)
	}
	for i := range tab.Members {
		tab.Members[i].MaxFormat = table.Format
	}
	w.put(t, tab)
	// They only have it in the table: no process works, so that nothing moves.
	w.expect(t, "drain web-0 --wait --timeout 1s", exitConflict, "not done after 1s: web-0-a has 128 slots and 0 duties left")
	w.expect(t, "drain web-1 --wait", exitFindings, "all others are drained or leaving")
	w.expect(t, "rebalance --dry-run -o json", exitGood, `"moves": []`)
	// Leases tell of epoch 43: an old copy was put over the table.
	tab.Epoch = 42
	w.put(t, tab)
	w.expect(t, "resume", exitFindings, "old copy")

	reader, writer := w.user(t, "get", "list"), w.user(t, "get", "list", "update")
	tab.Epoch = 50
	w.put(t, tab)
	code, _, errOut := w.rota(t, "pause web", reader)
	if code != exitForbidden || !strings.Contains(errOut, "may not update configmaps") || w.table(t).Paused() {
		t.Errorf("without permission: exit code %d\n%s", code, errOut)
	}
	code, _, errOut = w.rota(t, "pause web", writer)
	if code != exitGood || !strings.Contains(errOut, "cannot create the event MovesPaused") || !w.table(t).Paused() || !strings.Contains(w.table(t).Pause.By, "user-") {
		t.Errorf("without permission to create events: exit code %d\n%s\n%v", code, errOut, w.table(t))
	}
	w.expect(t, "status", exitGood, "moves are paused since ", " by user-")
}

// One who may not read Leases is told so, rather than that no member renews its own.
func TestRebalanceWithoutLeases(t *testing.T) {
	t.Parallel()
	w := writeRota(t, halves())
	kubeconfig := w.user(t, "get", "update")
	code, _, errOut := w.rota(t, "rebalance web --dry-run", kubeconfig)
	if code != exitGood || !strings.Contains(errOut, "may not list leases") || strings.Contains(errOut, "does not renew") {
		t.Errorf("--dry-run: exit code %d\n%s", code, errOut)
	}
	code, _, errOut = w.rota(t, "rebalance web", kubeconfig)
	if code != exitForbidden || !strings.Contains(errOut, "may not list leases") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}

// user makes a user with permissions for ConfigMaps and Leases in w's namespace, and returns a kubeconfig.
func (w *written) user(t *testing.T, verbs ...string) (kubeconfig string) {
	t.Helper()
	name := "user-" + w.namespace + "-" + strings.Join(verbs, "-")
	w.plane.Grant(t, w.namespace, name, controlplane.User(name),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs})
	kubeconfig = t.TempDir() + "/" + name
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(kubeconfig, name))
	return kubeconfig
}

// To wait goes on while the API server does not answer.
func TestWaitOutlastsErrors(t *testing.T) {
	t.Parallel()
	tab := halves()
	for i := range tab.Members {
		tab.Members[i].MaxFormat = table.Format
	}
	w := writeRota(t, tab)
	var given, failed atomic.Bool
	path := w.proxied(t, func(out http.ResponseWriter, r *http.Request) bool {
		mine := strings.HasSuffix(r.URL.Path, "/configmaps/web")
		if mine && r.Method == http.MethodPut {
			given.Store(true)
		} else if mine && given.Load() && !failed.Swap(true) {
			http.Error(out, "no etcd", http.StatusInternalServerError)
			return true
		}
		return false
	})
	code, _, errOut := w.rota(t, "drain web-0 --wait --timeout 5s", path)
	if !failed.Load() || code != exitConflict || !strings.Contains(errOut, "retrying") || !strings.Contains(errOut, "not done after 5s: web-0-a has 128 slots") {
		t.Errorf("failed %v, exit code %d\n%s", failed.Load(), code, errOut)
	}
}
