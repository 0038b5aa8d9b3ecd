package demo

import (
	"context"
	"errors"
	"maps"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/process"
)

const (
	// kubeletPeriod is the time between two looks at the Pods.
	kubeletPeriod = 200 * time.Millisecond
	nodeName      = "demo"
)

// kubelet runs the Pods of a Deployment as replicas, and says how they are. It binds them to a node, starts a process
// for each, and reports it as ready when it has joined. When the Pod is deleted, it ends the process with SIGTERM, and
// lets go of the Pod when that has ended.
type kubelet struct {
	e          *engine
	deployment string

	mu     sync.Mutex
	pods   map[string]*hosted
	wanted int32
}

// hosted is a Pod with its process.
type hosted struct {
	replica *replica
	// address is where its metrics are.
	address       string
	ready, ending bool
}

// addresses returns where the metrics of the Pods are that run and are not told to end.
func (k *kubelet) addresses() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	for name, h := range k.pods {
		if !h.ending {
			out[name] = h.address
		}
	}
	return out
}

// desired is how many replicas the Deployment had last.
func (k *kubelet) desired() int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted
}

// run looks at the Pods until ctx ends. An API server that is busy is asked again.
func (k *kubelet) run(ctx context.Context) {
	for await.Sleep(ctx, kubeletPeriod) == nil {
		var pods corev1.PodList
		err := k.e.cluster.Client.List(ctx, &pods, client.InNamespace(rotaNamespace), client.MatchingLabels(podLabels))
		for i := range pods.Items {
			err = errors.Join(err, k.tend(ctx, &pods.Items[i]))
		}
		if err != nil && ctx.Err() == nil {
			k.e.view.log("the Pods: %v", err)
		}
	}
}

func (k *kubelet) tend(ctx context.Context, pod *corev1.Pod) error {
	k.mu.Lock()
	h := k.pods[pod.Name]
	k.mu.Unlock()
	switch {
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, pod, h)
	case pod.Spec.NodeName == "":
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
		return k.e.cluster.Client.SubResource("binding").Create(ctx, pod, binding)
	case h == nil:
		return k.start(ctx, pod)
	case !h.ready && k.e.absent(pod.Name) == "":
		if err := k.report(ctx, pod, corev1.ConditionTrue); err != nil {
			return err
		}
		h.ready = true // only run's goroutine reads it
	}
	return nil
}

func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	address, err := process.FreeAddress(ctx)
	if err != nil {
		return err
	}
	p, err := k.e.startPod(pod.Name, "v1", k.e.o.Command, func(c *operatorConfig) { c.Metrics = address })
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.pods[pod.Name] = &hosted{replica: p, address: address}
	k.mu.Unlock()
	return k.report(ctx, pod, corev1.ConditionFalse)
}

// report says that a Pod runs, and whether it is ready.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = ptr.To(metav1.Now())
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Now()},
	}
	return k.e.cluster.Client.Status().Update(ctx, pod)
}

func (k *kubelet) end(ctx context.Context, pod *corev1.Pod, h *hosted) error {
	if h != nil && !h.ending {
		k.mu.Lock()
		h.ending = true
		k.mu.Unlock()
		return h.replica.End(syscall.SIGTERM)
	}
	if h != nil && h.replica.Lingers() != "" {
		return nil
	}
	err := k.e.cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return client.IgnoreNotFound(err)
}

// watch records how many replicas there are until ctx ends, and tells when the autoscaler changes its mind.
func (k *kubelet) watch(ctx context.Context) {
	deployment := client.ObjectKey{Namespace: rotaNamespace, Name: k.deployment}
	scaler := client.ObjectKey{Namespace: rotaNamespace, Name: k.e.o.Autoscale.Scaler.Name}
	for await.Sleep(ctx, kubeletPeriod) == nil {
		var d appsv1.Deployment
		var a autoscalingv2.HorizontalPodAutoscaler
		err := errors.Join(k.e.cluster.Client.Get(ctx, deployment, &d), k.e.cluster.Client.Get(ctx, scaler, &a))
		if err != nil {
			continue // the next one tells
		}
		s := Scaled{
			at: journal.Now(), Wanted: ptr.Deref(d.Spec.Replicas, 1), Running: len(k.e.live()), Metrics: map[string]float64{},
		}
		if t, _ := k.e.follow.Latest(); t != nil {
			s.Members = len(t.Members)
		}
		for _, m := range a.Status.CurrentMetrics {
			if m.Pods != nil && m.Pods.Current.AverageValue != nil {
				s.Metrics[m.Pods.Metric.Name] = m.Pods.Current.AverageValue.AsApproximateFloat64()
			}
		}
		k.mu.Lock()
		before := k.wanted
		k.wanted = s.Wanted
		k.mu.Unlock()
		k.e.mu.Lock()
		n := len(k.e.scaling)
		if n == 0 || !s.same(&k.e.scaling[n-1]) {
			k.e.scaling = append(k.e.scaling, s)
		}
		k.e.mu.Unlock()
		if before != s.Wanted {
			k.e.view.log("the autoscaler wants %d replicas (%d run, %d are members; it saw %v)",
				s.Wanted, s.Running, s.Members, s.Metrics)
		}
	}
}

func (s *Scaled) same(o *Scaled) bool {
	return s.Wanted == o.Wanted && s.Running == o.Running && s.Members == o.Members && maps.Equal(s.Metrics, o.Metrics)
}
