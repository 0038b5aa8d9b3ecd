package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/examples/internal/replica"
	"github.com/rota-dev/rota/examples/notify/controller"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { replica.Main(m, controlplane.Options{}, main) }

// receiver counts notifications by ID.
type receiver struct {
	t      *testing.T
	mu     sync.Mutex
	taken  map[string]int
	epochs map[string]uint64 // the last one by object
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var n controller.Notification
	err := json.NewDecoder(req.Body).Decode(&n)
	epoch, noEpoch := strconv.ParseUint(req.Header.Get(controller.EpochHeader), 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || noEpoch != nil || epoch < r.epochs[n.Name] {
		r.t.Errorf("%+v with epoch %d after %d: %v, %v", n, epoch, r.epochs[n.Name], err, noEpoch)
	}
	r.taken[n.ID]++
	r.epochs[n.Name] = epoch
	w.WriteHeader(http.StatusNoContent)
}

// counts returns how many notifications came, and how many of them came more than once.
func (r *receiver) counts() (came, twice int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.taken {
		if n > 1 {
			twice++
		}
	}
	return len(r.taken), twice
}

// world is a namespace with Deployments whose status the test writes, since there is no controller of Deployments.
type world struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	url       string
	changes   int
}

const deployments = 40

// change sets the condition of all Deployments.
func (w *world) change(available corev1.ConditionStatus) {
	w.Helper()
	w.changes++
	api := w.client.AppsV1().Deployments(w.namespace)
	for i := range deployments {
		name := fmt.Sprintf("d-%02d", i)
		d, err := api.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			labels := map[string]string{"app": name}
			d = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "none"}}}},
			}}
			if d, err = api.Create(w.Context(), d, metav1.CreateOptions{}); err != nil {
				w.Fatal(err)
			}
		}
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available,
			LastTransitionTime: metav1.NewTime(time.Now().Add(time.Duration(w.changes-60) * time.Minute))}}
		_, err = api.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
}

// until waits for a condition, for a minute at most.
func (w *world) until(what string, done func() bool) {
	w.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s: not in time", what)
		}
	}
}

// members is how many replicas have a Lease.
func (w *world) members() int {
	list, err := w.client.CoordinationV1().Leases(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "rota.dev/rota=notify"})
	require.NoError(w, err)
	return len(list.Items)
}

func (w *world) start(pod string) *replica.Replica {
	w.Helper()
	return replica.Start(w.T, w.namespace, pod, "-url", w.url, "-after=1s", "-rota-lease-duration=4500ms")
}

// Every change is told once while replicas come and go. After a kill a notification may come twice, with the same ID.
func TestEachChangeIsToldOnce(t *testing.T) {
	controlplane.Essential(t)
	r := &receiver{t: t, taken: map[string]int{}, epochs: map[string]uint64{}}
	server := httptest.NewServer(r)
	defer server.Close()
	w := &world{T: t, client: kubernetes.NewForConfigOrDie(controlplane.For(t).Config()), namespace: controlplane.Namespace(t), url: server.URL}
	told := func() bool { came, _ := r.counts(); return came == deployments*w.changes }

	a := w.start("notify-a")
	w.change(corev1.ConditionFalse)
	w.until("one replica tells", told)

	b := w.start("notify-b")
	w.until("the other joins", func() bool { return w.members() == 2 })
	w.change(corev1.ConditionTrue)
	w.until("both tell", told)

	left := make(chan error, 1)
	go func() { left <- a.Leave() }()
	w.change(corev1.ConditionFalse)
	if err := <-left; err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	w.until("the other tells all", told)
	if _, twice := r.counts(); twice > 0 {
		t.Errorf("%d notifications came more than once, and nobody was killed", twice)
	}

	w.start("notify-c")
	w.until("a third one joins", func() bool { return w.members() == 2 })
	b.Kill()
	w.change(corev1.ConditionTrue)
	w.until("the third one tells all", told)
	if _, twice := r.counts(); twice > 4 {
		t.Errorf("%d notifications came more than once, want at most one for each of 4 workers", twice)
	}
}
