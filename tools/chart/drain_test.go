package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/rig/process"
)

// TestDrain evicts Pods, with the controllers that make them and count disruptions. A single replica can be evicted. Of
// three, one can, and the next when a replacement is ready.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	w.controllers()
	w.install(set(nil, "rota.replicas", 1), nil)
	w.ready(1)
	if err := w.evict(w.pods()[0].Name); err != nil {
		t.Errorf("the only replica: %v", err)
	}
	w.ready(1)
	w.install(set(nil, "rota.replicas", 3), nil)
	w.ready(3)
	pods := w.pods()
	if err := w.evict(pods[0].Name); err != nil {
		t.Errorf("the first of three: %v", err)
	}
	if err := w.evict(pods[1].Name); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second of three, while the first has no replacement: %v, want it to wait", err)
	}
	w.ready(3)
	if err := w.evict(pods[1].Name); err != nil {
		t.Errorf("the second of three, after that: %v", err)
	}
}

// controllers runs those of the kube-controller-manager that TestDrain is about.
func (w *world) controllers() {
	w.t.Helper()
	binary, err := build.Binary(w.t.Context(), os.Stderr)
	if err != nil {
		w.t.Fatal(err)
	}
	port, err := process.FreePort(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	p, err := process.Start(process.Options{
		Name: "kube-controller-manager", Log: filepath.Join(dir, "log"), Variable: "ROTA_UNUSED",
		Command: []string{
			binary, "controller-manager", "--kubeconfig=" + w.plane.Kubeconfig(), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + dir,
			"--controllers=deployment-controller,replicaset-controller,disruption-controller",
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Failure(); err != nil {
			w.t.Error(err)
		}
		p.Kill()
	})
}

// pods returns the Pods of the release.
func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.typed.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// ready does what kubelets do until n Pods are ready and the budget lets one of them go.
func (w *world) ready(n int) {
	w.t.Helper()
	w.eventually(2*time.Minute, func() string {
		pods := w.pods()
		for _, pod := range pods {
			if len(pod.Status.Conditions) > 0 {
				continue
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			api := w.typed.CoreV1().Pods(w.namespace)
			if _, err := api.UpdateStatus(w.t.Context(), &pod, metav1.UpdateOptions{}); err != nil {
				return err.Error()
			}
		}
		var d appsv1.Deployment
		var b policyv1.PodDisruptionBudget
		key := w.key()
		if err := w.Get(w.t.Context(), key, &d); err != nil {
			return err.Error()
		}
		if err := w.Get(w.t.Context(), key, &b); err != nil {
			return err.Error()
		}
		healthy := len(pods) == n && int(d.Status.ReadyReplicas) == n && int(b.Status.CurrentHealthy) == n
		if !healthy || b.Status.DisruptionsAllowed != 1 {
			return fmt.Sprintf("%d Pods, %d ready, budget %+v", len(pods), d.Status.ReadyReplicas, b.Status)
		}
		return ""
	})
}

// evict evicts a Pod as kubectl drain does.
func (w *world) evict(pod string) error {
	return w.typed.PolicyV1().Evictions(w.namespace).Evict(w.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: w.namespace},
	})
}
