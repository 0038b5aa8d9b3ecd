package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// podLeast and podMost bound the sizes of Pods, in bytes of JSON.
	podLeast, podMost = 2 << 10, 17 << 10
	// podCondition is the type of the condition that a change writes, and its controller reads.
	podCondition = "bench.rota.dev/Change"
	// podSeen is the annotation in which the controller says so.
	podSeen = "bench.rota.dev/seen"
)

// pods are Pods of many sizes, whose status changes.
type pods struct{}

func (pods) kinds() []client.Object { return []client.Object{&corev1.Pod{}} }

// pod returns one with as many containers, and as much in their environments, as fits the size.
func (pods) pod(at client.ObjectKey, size int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Name,
			Labels:      map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": at.Name},
			Annotations: map[string]string{"bench.rota.dev/about": cluster.Letters(at.Name, 64)},
		},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: new(bool)},
	}
	const container, value = 4 << 10, 200
	for left := size - podLeast/2; left > 0; left -= container {
		c := corev1.Container{
			Name: fmt.Sprintf("c%d", len(p.Spec.Containers)), Image: "registry.example.com/team/web:v1.2.3",
			Args: []string{"--listen=:8080", "--log-level=info"},
		}
		for room := min(left, container) - 600; room > 0; room -= value + 40 {
			name := fmt.Sprintf("SETTING_%d", len(c.Env))
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: cluster.Letters(at.Name+c.Name+name, value)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// size is that of the i-th Pod: sizes are spread evenly.
func (pods) size(i int64) int { return podLeast + int(i*7919%(podMost-podLeast)) }

func (p pods) fill(ctx context.Context, r *runner, n int) error {
	c := r.cluster.Client
	for _, namespace := range []string{r.cluster.Sites, created} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, account)); err != nil {
			return err
		}
	}
	return stage.Parallel(ctx, 0, n, func(i int) error {
		pod := p.pod(client.ObjectKey{Namespace: r.cluster.Sites, Name: cluster.SiteName(i)}, p.size(int64(i)))
		if err := cluster.Stamp(c.Scheme(), pod); err != nil {
			return err
		}
		return c.Create(ctx, pod)
	})
}

func (p pods) controllers(mgr manager.Manager, _ *operatorConfig) []controlled {
	c := mgr.GetClient()
	r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, req.NamespacedName, pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		change := p.changeOf(pod)
		if change == "" || change == pod.Annotations[podSeen] {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(annotate(ctx, c, pod, podSeen, change))
	})
	return []controlled{{stage.Controller{For: &corev1.Pod{}, Workers: stage.Concurrency}, r}}
}

// changeOf is the number of the last change of a Pod's status; "": there was none.
func (pods) changeOf(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == podCondition {
			return c.Message
		}
	}
	return ""
}

// create makes a Pod, and changes its status, since what nobody has changed is not reconciled.
func (p pods) create(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	if err := c.Create(ctx, p.pod(at, p.size(n))); err != nil {
		return 0, err
	}
	return p.change(ctx, c, at, n)
}

func (pods) change(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","message":"%d"}]}}`, podCondition, n)
	return n, c.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}

func (pods) shows() client.Object { return &corev1.Pod{} }

func (pods) shown(obj client.Object) int64 {
	return numberIn(obj, podSeen)
}
