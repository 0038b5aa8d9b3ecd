package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/test/require"
)

var shop = cache.ObjectName{Namespace: "shop", Name: "cart"}

// deployment returns a Deployment with a condition that began a while ago.
func deployment(kind, status string, ago time.Duration) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": "cart", "uid": "u"},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Progressing", "status": "True"},
			map[string]any{"type": kind, "status": status, "lastTransitionTime": time.Now().Add(-ago).UTC().Format(time.RFC3339),
				"reason": "MinimumReplicasUnavailable", "message": "no replicas"},
		}},
	}}
}

func TestNotificationOf(t *testing.T) {
	for _, c := range []struct {
		kind, status string
		want, ready  bool
	}{
		{"Ready", "True", true, true}, {"Ready", "False", true, false}, {"Available", "False", true, false},
		{"Ready", "Unknown", false, false}, {"Synced", "False", false, false},
	} {
		n := notificationOf(deployment(c.kind, c.status, time.Hour))
		if (n != nil) != c.want || n != nil && (n.Ready != c.ready || n.Reason == "" || !strings.HasPrefix(n.ID, "u-"+c.status)) {
			t.Errorf("%s=%s: %+v", c.kind, c.status, n)
		}
	}
	if n := notificationOf(&unstructured.Unstructured{Object: map[string]any{}}); n != nil {
		t.Errorf("without a status: %+v", n)
	}
}

func TestParseKind(t *testing.T) {
	k, err := ParseKind("Deployment.v1.apps")
	if err != nil || k.Group != "apps" || k.Version != "v1" || k.GroupVersionKind.Kind != "Deployment" {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := ParseKind("Deployment"); err == nil || !strings.Contains(err.Error(), "KIND.VERSION.GROUP") {
		t.Errorf("no group: %v", err)
	}
}

// receiver answers with the next status, and notes what it has taken.
type receiver struct {
	answers []int
	taken   []Notification
	epochs  []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status := http.StatusNoContent
	if len(r.answers) > 0 {
		status, r.answers = r.answers[0], r.answers[1:]
	}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "7")
	}
	if status/100 == 2 {
		var n Notification
		_ = json.NewDecoder(req.Body).Decode(&n)
		r.taken, r.epochs = append(r.taken, n), append(r.epochs, req.Header.Get(EpochHeader))
	}
	w.WriteHeader(status)
}

// Each change that lasts is told once, and repeated until it is taken.
func TestSync(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	client := fake.NewClientset()
	c, err := New(client, informer, queue, server.URL)
	require.NoError(t, err)
	step := func(what string, obj *unstructured.Unstructured, answers []int, wantErr string, wantTaken int) {
		t.Helper()
		if obj != nil {
			require.NoError(t, informer.GetStore().Update(obj))
		}
		r.answers = answers
		err := c.Sync(t.Context(), shop)
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) || len(r.taken) != wantTaken {
			t.Errorf("%s: error %v, want %q; %d notifications, want %d", what, err, wantErr, len(r.taken), wantTaken)
		}
	}
	failing := deployment("Available", "False", time.Hour)
	step("gone", nil, nil, "", 0)
	step("always ready", deployment("Available", "True", 2*time.Hour), nil, "", 0)
	step("not for long", deployment("Available", "False", time.Second), nil, "", 0)
	step("refused", failing, []int{http.StatusBadGateway}, "502", 0)
	step("later", nil, []int{http.StatusTooManyRequests}, "wait for 7s", 0)
	step("taken", nil, nil, "", 1)
	step("again", nil, nil, "", 1)
	step("ready", deployment("Available", "True", 10*time.Minute), nil, "", 2)
	if r.taken[0].Ready || !r.taken[1].Ready || r.taken[0].ID == r.taken[1].ID || r.epochs[0] != "" {
		t.Errorf("%+v", r.taken)
	}
	record, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "notify-u", metav1.GetOptions{})
	if err != nil || len(record.OwnerReferences) != 1 || record.OwnerReferences[0].Name != "cart" {
		t.Errorf("record %+v, %v", record, err)
	}
}
