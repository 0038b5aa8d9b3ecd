package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func TestPrintWho(t *testing.T) {
	at := time.Date(2026, 5, 1, 3, 4, 5, 0, time.Local)
	works := &view.Who{
		Answer: "web-1-b works on Website a/blog", Works: view.WorksYes, Rota: "ns/web", By: "its name", Slot: ptr.To(157), Slots: 256,
		Member: "web-1-b", Pod: "web-1", State: view.Working, Since: &view.Since{Epoch: 42, At: &at, Text: "web-9-z handed it over, and has left"},
		Move: &view.Move{From: "web-1-b", To: "web-0-a", Phase: "warm", Seconds: ptr.To(1.5)}, Delivery: "SlotLabel",
		Label: "rota.dev/x", LabelValue: "7", LabelHas: "7", Dispatched: true, Held: ptr.To(true), Evidence: "by its report",
		Notes: []string{"it is being deleted"}, Problems: []view.Problem{{What: "KeyWaiting", Message: "a key waits"}},
		Warnings: []view.Warning{{Reason: "ReconcilesFail", Message: "all\nof them"}},
	}
	nobody := &view.Who{Answer: "nobody works on Pod a/x: one", Works: view.WorksNo, Rota: "ns/web", Reasons: []string{"one", "two", "three"}}
	var both bytes.Buffer
	require.NoError(t, errors.Join(printWho(&both, paint{}, works), printWho(&both, paint{}, nobody)))
	golden.File(t, "testdata/who_printed.txt", both.String())
	failing := *works
	failing.Health = []view.KeyHealth{{Controller: "website", Text: "has failed 12 times in a row"}}
	var text bytes.Buffer
	if err := printWho(&text, paint{}, &failing); err != nil || !strings.HasPrefix(text.String(), "‼ ") {
		t.Errorf("an object that fails: %v\n%s", err, text.String())
	}
	works.Late = ptr.To(9.0)
	var out bytes.Buffer
	if err := printWho(&out, paint{on: true}, works); err != nil || !strings.HasPrefix(out.String(), "\x1b[33m‼ ") {
		t.Errorf("a late member: %v\n%s", err, out.String())
	}
}

// sharded has the members of a rota report that they shard ConfigMaps, and Secrets by their owners. web-1-b holds blog,
// and its Secret is shop. Nobody holds the table, which is a ConfigMap, too.
func (w *written) sharded(t *testing.T) {
	t.Helper()
	configMap, secret := schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}
	maps, tab := w.client.CoreV1().ConfigMaps(w.namespace), halves()
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "blog"}}, metav1.CreateOptions{})
	if err == nil {
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}
		_, err = w.client.CoreV1().Secrets(w.namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop", OwnerReferences: []metav1.OwnerReference{ref}}}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
	hash := slot.HashName(w.namespace, "blog")
	n := tab.Slots.Of(hash)
	for _, m := range tab.Members {
		lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), names.Lease(w.name, m.ID), metav1.GetOptions{})
		require.NoError(t, err)
		r := &coverage.Report{
			Member: m.ID, Serial: 2, Open: tab.Owned(m.ID), Digests: coverage.Digests{configMap: {}, secret: {}},
			Owners: map[schema.GroupKind]map[schema.GroupKind]bool{secret: {configMap: true}},
			// Objects that are younger than a lease may be newer than a report.
			Setup: map[string]string{coverage.SettingLease: "10ms", coverage.SettingFence: "1ms", coverage.SettingRetry: "1h", coverage.SettingDelivery: "Filter"},
		}
		if r.Open.Has(n) {
			r.Digests[configMap][n] = sharding.Digest{Objects: 1, Hashes: hash}
			r.Digests[secret][n] = sharding.Digest{Objects: 1, Hashes: slot.HashName(w.namespace, "shop")}
		}
		w.report(t, r, lease)
	}
}

// share says whether objects of these names have the same slot in this namespace. Its name is random: of 256 namespaces
// there is one in which two given names do.
func (w *written) share(a, b string) bool {
	return slot.Count(256).Of(slot.HashName(w.namespace, a)) == slot.Count(256).Of(slot.HashName(w.namespace, b))
}

// `rota who` on a real API server: kinds in every form, objects that nobody works on, and what it cannot read.
func TestWhoOfAnObject(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	for w.share("blog", w.name) {
		w = newWritten(t)
	}
	w.make(t, halves())
	w.sharded(t)
	hash := slot.HashName(w.namespace, "blog")
	owner := halves().At(slot.Count(256).Of(hash)).Owner
	for name, resources := range map[string][]string{
		"reader": {"configmaps", "leases", "events"}, "blind": {"configmaps", "events"},
	} {
		w.plane.Grant(t, w.namespace, name, controlplane.User(name+"-"+w.namespace), rbacv1.PolicyRule{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: resources, Verbs: []string{"get", "list"},
		})
	}
	stranger := t.TempDir() + "/stranger"
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(stranger, "stranger"))
	w.converse(t, "who.txt", "$OWNER", owner, "$STRANGER", stranger)
	_, out, _ := w.rota(t, "who cm/blog -o json --rota "+w.namespace+"/web")
	var back view.Who
	if err := json.Unmarshal([]byte(out), &back); err != nil || back.Works != view.WorksYes || back.Member != owner || back.Held == nil || !*back.Held {
		t.Errorf("%v:\n%s", err, out)
	}
	w.search(t, owner)
	w.completes(t)
}

// search asks a dashboard of the rota the same.
func (w *written) search(t *testing.T, owner string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	server, err := dashboard.Open(ctx, dashboard.AnyPort, controlplane.For(t).Config(), w.namespace, w.name, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	for query, want := range map[string]string{
		"kind=cm&namespace=" + w.namespace + "&name=blog": `200 {"answer":"` + owner + ` works on ConfigMap ` + w.namespace + `/blog"`,
		"kind=nothing&name=blog":                          "400 {\"error\":\"kind \\\"nothing\\\"",
		"kind=cm&name=blog":                               "400 {\"error\":\"blog: no object can have that name: ConfigMap is namespaced",
	} {
		response, err := http.Get(server.URL() + "who?" + query)
		require.NoError(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := fmt.Sprint(response.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("who?%s: %s, want %s", query, got, want)
		}
	}
}

// completes presses the Tab key: rotas, members, kinds and names of objects.
func (w *written) completes(t *testing.T) {
	t.Helper()
	for _, c := range []struct{ line, word, want string }{
		{"status", "", "web\n"},
		{"rebalance", "w", "web\n"},
		{"rebalance web --without", "", "web-0-a\nweb-1-b\n"},
		{"rebalance --without", "", "web-0-a\nweb-1-b\n"},
		{"drain", "", "web-0-a\nweb-1-b\n"},
		{"who --rota", "", w.namespace + "/web\n"},
		{"who", "", "configmaps/\n"},
		{"who", "", "secrets/\n"},
		{"who", "cm/b", "cm/blog\n"},
		{"who", "secret/", "secret/shop\n"},
		{"who cm", "", "blog\n"},
		{"who cm/blog", "", ":4\n"}, // nothing, and no files
		{"who nothing", "", ":1\n"}, // an error
		{"who cm/blog -o", "", "table\njson\nyaml\n"},
	} {
		words := strings.Fields(c.line)
		args := append([]string{"rota", "__complete", words[0], "-n", w.namespace, "--kubeconfig", controlplane.For(t).Kubeconfig()}, words[1:]...)
		_, out, _ := runCommand(t.Context(), append(args, c.word)...)
		if !strings.Contains("\n"+out, "\n"+c.want) {
			t.Errorf("completion of %q %q: no %q in\n%s", c.line, c.word, c.want, out)
		}
	}
}
