package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/examples/replicas/controller"
	"github.com/rota-dev/rota/test/controlplane"
)

const (
	// asReplica makes the test binary run main, or with the value "stock" the same controller without Rota, alone.
	asReplica = "REPLICAS_REPLICA"
	// lagsVariable says by how much watches lag, as in 300ms,2s, and roundsVariable how often all phases are gone
	// through.
	lagsVariable   = "REPLICAS_LAGS"
	roundsVariable = "REPLICAS_ROUNDS"
)

func TestMain(m *testing.M) {
	how := os.Getenv(asReplica)
	if how == "" {
		controlplane.Main(m, controlplane.Options{})
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if how == "stock" {
		stock()
	} else {
		main()
	}
	os.Exit(0)
}

// stock is what the leader does in stock/main.go.
func stock() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := must(clientcmd.BuildConfigFromFlags("", os.Args[2]))
	cfg.QPS = -1
	client := must(kubernetes.NewForConfig(cfg))
	factory := informers.NewSharedInformerFactory(client, 0)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	c := must(controller.New(client, factory, queue))
	factory.Start(ctx.Done())
	c.Run(ctx, 2)
}

// replica is a process of the controller.
type replica struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func startReplica(t *testing.T, how, kubeconfig, namespace, pod string) *replica {
	t.Helper()
	p := &replica{cmd: exec.Command(os.Args[0], "-kubeconfig", kubeconfig)}
	p.cmd.Args[0] = pod // its user agent
	if how != "stock" {
		p.cmd.Args = append(p.cmd.Args, "-rota-lease-duration=4500ms")
	}
	p.cmd.Env = append(os.Environ(), asReplica+"="+how, "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE="+namespace)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %v\n%s", pod, p.cmd.ProcessState, p.log.Bytes())
		}
	})
	return p
}

func (p *replica) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *replica) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *replica) leave(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
}

// world is what the controller works on, watched without a lag.
type world struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	random    *rand.Rand

	mu   sync.Mutex
	sets map[string]*set
	// surplus and missing are Pods that there were above what a set wanted, before and after its last change, and
	// below.
	surplus, missing int
	changes          int
}

// set is one of them: how many Pods it wants, and between what it may have meanwhile.
type set struct {
	want, low, high int
	pods            map[string]bool
	// strays are those that were made for it and that the watch has not told of.
	strays map[string]bool
}

const sets = 24

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := controlplane.For(t)
	w := &world{
		t: t, client: kubernetes.NewForConfigOrDie(plane.Config()), namespace: controlplane.Namespace(t), random: rand.New(rand.NewPCG(1, 2)),
		sets: map[string]*set{},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(pod any) { w.see(nil, pod.(*corev1.Pod)) },
		UpdateFunc: func(old, pod any) {
			w.see(old.(*corev1.Pod), pod.(*corev1.Pod))
		},
		DeleteFunc: func(pod any) {
			if last, ok := pod.(cache.DeletedFinalStateUnknown); ok {
				pod = last.Obj
			}
			w.see(pod.(*corev1.Pod), nil)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() {
		stop()
		factory.Shutdown()
		// The next controller must not find them.
		background := context.Background()
		_ = w.client.CoreV1().ConfigMaps(w.namespace).DeleteCollection(background, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: controller.SetLabel})
		_ = w.client.CoreV1().Pods(w.namespace).DeleteCollection(background, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	return w
}

// see counts the Pods that match a set.
func (w *world) see(old, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old != nil {
		if s := w.sets[old.Labels[controller.OfLabel]]; s != nil {
			delete(s.pods, old.Name)
		}
	}
	if pod != nil && pod.DeletionTimestamp == nil {
		if s := w.sets[pod.Labels[controller.OfLabel]]; s != nil {
			s.pods[pod.Name] = true
			delete(s.strays, pod.Name)
		}
	}
	for _, p := range []*corev1.Pod{old, pod} {
		if p == nil {
			continue
		}
		if s := w.sets[p.Labels[controller.OfLabel]]; s != nil {
			if n := len(s.pods); old == nil && n > s.high {
				w.surplus++
				w.t.Logf("%s of %s, by %s, is a Pod too many: %d", p.Name, p.Labels[controller.OfLabel], madeBy(p), n)
			} else if pod == nil && n < s.low {
				w.missing++
				w.t.Logf("%s of %s is a Pod too few: %d", p.Name, p.Labels[controller.OfLabel], n)
			}
		}
	}
}

// madeBy is who created a Pod, as its user agent says.
func madeBy(pod *corev1.Pod) string {
	if len(pod.ManagedFields) == 0 {
		return "nobody knows"
	}
	return pod.ManagedFields[0].Manager
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// make makes a set, or changes how many Pods it wants.
func (w *world) make(name string, want int) {
	w.t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{controller.SetLabel: "true"}},
		Data:       map[string]string{controller.ReplicasKey: strconv.Itoa(want)},
	}
	w.mu.Lock()
	s := w.sets[name]
	fresh := s == nil
	if fresh {
		s = &set{pods: map[string]bool{}, strays: map[string]bool{}}
		w.sets[name] = s
	}
	s.low, s.high, s.want = min(s.want, want), max(s.want, want), want
	w.mu.Unlock()
	api := w.client.CoreV1().ConfigMaps(w.namespace)
	if fresh {
		_, err := api.Create(w.t.Context(), cm, metav1.CreateOptions{})
		w.must(err)
		return
	}
	_, err := api.Update(w.t.Context(), cm, metav1.UpdateOptions{})
	w.must(err)
}

// change changes a set that is as it should be: how many Pods it wants, a stray Pod that it has to adopt, or one that
// stops to match.
func (w *world) change() {
	w.t.Helper()
	name := fmt.Sprintf("set-%02d", w.random.IntN(sets))
	w.mu.Lock()
	s := w.sets[name]
	if len(s.pods) != s.want || len(s.strays) > 0 {
		w.mu.Unlock()
		return
	}
	w.changes++
	s.low, s.high = s.want, s.want
	pod := ""
	kind, stray := w.random.IntN(4), fmt.Sprintf("stray-%d", w.changes)
	switch {
	case kind == 0:
		s.high++
		s.strays[stray] = true
	case kind == 1 && len(s.pods) > 0:
		s.low--
		for pod = range s.pods {
			break
		}
	default:
		kind = 2
	}
	want := s.want
	w.mu.Unlock()
	pods := w.client.CoreV1().Pods(w.namespace)
	switch kind {
	case 0:
		_, err := pods.Create(w.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: stray, Labels: map[string]string{controller.OfLabel: name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/stray"}}},
		}, metav1.CreateOptions{})
		w.must(err)
	case 1:
		_, _ = pods.Patch(w.t.Context(), pod, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+controller.OfLabel+`":null}}}`), metav1.PatchOptions{})
	default:
		w.make(name, (want+1+w.random.IntN(4))%6)
	}
}

// changing changes sets for a time.
func (w *world) changing(d time.Duration) {
	w.t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		w.change()
	}
}

// settled waits until each set has the Pods that it wants, and they are its own.
func (w *world) settled() {
	w.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; <-time.After(50 * time.Millisecond) {
		list, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: controller.OfLabel})
		w.must(err)
		have, orphans := map[string]int{}, 0
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil {
				have[pod.Labels[controller.OfLabel]]++
				if metav1.GetControllerOf(&pod) == nil {
					orphans++
				}
			}
		}
		var wrong []string
		w.mu.Lock()
		for name, s := range w.sets {
			if have[name] != s.want {
				wrong = append(wrong, fmt.Sprintf("%s has %d Pods, want %d", name, have[name], s.want))
			}
		}
		w.mu.Unlock()
		if len(wrong) == 0 && orphans == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d orphans; %s", orphans, strings.Join(wrong, "; "))
		}
	}
}

// TestSurplusAndMissing goes through all that happens to members while watches lag, and compares what the sets have
// meanwhile with what they have under the same controller alone, without Rota.
func TestSurplusAndMissing(t *testing.T) {
	plane := controlplane.For(t)
	lags := os.Getenv(lagsVariable)
	if lags == "" {
		lags = "300ms"
	}
	rounds, _ := strconv.Atoi(os.Getenv(roundsVariable))
	for text := range strings.SplitSeq(lags, ",") {
		lag, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) {
			kubeconfig := lagging(t, plane.Config(), lag)
			var alone [2]int
			t.Run("stock", func(t *testing.T) {
				w := newWorld(t)
				p := startReplica(t, "stock", kubeconfig, w.namespace, "stock")
				w.fill()
				w.changing(3*time.Second + 4*lag)
				w.settled()
				alone = w.verdict(t)
				p.kill()
			})
			t.Run("sharded", func(t *testing.T) {
				w := newWorld(t)
				w.phases(kubeconfig, lag, max(1, rounds))
				if got := w.verdict(t); got[0] > alone[0] || got[1] > alone[1] {
					t.Errorf("%d surplus and %d missing Pods, want no more than the controller alone has: %d and %d", got[0], got[1], alone[0], alone[1])
				}
			})
		})
	}
}

func (w *world) fill() {
	w.t.Helper()
	for i := range sets {
		w.make(fmt.Sprintf("set-%02d", i), 3)
	}
	w.settled()
}

func (w *world) verdict(t *testing.T) [2]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d changes of %d sets: %d surplus and %d missing Pods", w.changes, len(w.sets), w.surplus, w.missing)
	return [2]int{w.surplus, w.missing}
}

// phases are joins, a leave, a crash, a lapse and a rollout, with changes in each.
func (w *world) phases(kubeconfig string, lag time.Duration, rounds int) {
	t, serial := w.t, 0
	start := func() *replica {
		serial++
		return startReplica(t, "sharded", kubeconfig, w.namespace, fmt.Sprintf("replica-%d", serial))
	}
	moment := 1500*time.Millisecond + 2*lag
	a := start()
	w.fill()
	for range rounds {
		b, c := start(), start()
		w.changing(2 * moment)
		b.leave(t)
		w.changing(moment)
		c.kill()
		w.changing(moment)
		d := start()
		w.changing(moment)
		a.signal(t, syscall.SIGSTOP)
		w.changing(3500 * time.Millisecond) // its deadline passes; others may expel it
		a.signal(t, syscall.SIGCONT)
		w.changing(moment)
		next := start()
		w.changing(moment)
		a.kill()
		w.changing(moment)
		d.leave(t)
		a = next
		w.changing(moment)
	}
	w.settled()
	a.leave(t)
}
