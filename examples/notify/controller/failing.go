package controller

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// health is what an object's status says.
type health struct {
	// reason and message say why the object fails; empty: it does not, as far as one can see.
	reason, message string
	// failingSince is since when, as far as the status tells that.
	failingSince time.Time
	// healthySince is since when the object has been in order. Zero: it is not, or nobody can tell. A Pod that crashes
	// again and again has moments in which it neither fails nor is in order.
	healthySince time.Time
}

// healthOf judges an object of the kinds that can fail.
func healthOf(obj *unstructured.Unstructured) (health, error) {
	if obj.GetDeletionTimestamp() != nil {
		return health{}, nil // what ends need not work
	}
	switch obj.GroupVersionKind().GroupKind().String() {
	case "Pod":
		return judge(obj, podHealth)
	case "Job.batch":
		return judge(obj, jobHealth)
	case "Deployment.apps":
		return judge(obj, deploymentHealth)
	}
	return health{}, nil
}

func judge[T any](obj *unstructured.Unstructured, of func(*T) health) (health, error) {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &typed); err != nil {
		return health{}, fmt.Errorf("read %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return of(&typed), nil
}

func podHealth(pod *corev1.Pod) health {
	var ready, unready metav1.Time
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type != corev1.PodReady:
		case c.Status == corev1.ConditionTrue:
			ready = c.LastTransitionTime
		default:
			unready = c.LastTransitionTime
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && (w.Reason == notice.CrashLoopBackOff || w.Reason == notice.ImagePullBackOff) {
			return health{
				reason: w.Reason, message: fmt.Sprintf("container %s: %s", c.Name, w.Message), failingSince: unready.Time,
			}
		}
	}
	return health{healthySince: ready.Time}
}

func jobHealth(job *batchv1.Job) health {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return health{
				reason: notice.JobFailed, message: c.Reason + ": " + c.Message, failingSince: c.LastTransitionTime.Time,
			}
		}
	}
	return health{}
}

// deploymentHealth does not count a rollout that goes on: every new Deployment is unavailable at first. Its own
// progressDeadlineSeconds ends that.
func deploymentHealth(d *appsv1.Deployment) health {
	var available, progressing *appsv1.DeploymentCondition
	for i := range d.Status.Conditions {
		switch c := &d.Status.Conditions[i]; c.Type {
		case appsv1.DeploymentAvailable:
			available = c
		case appsv1.DeploymentProgressing:
			progressing = c
		default:
		}
	}
	switch {
	case available == nil:
		return health{}
	case available.Status == corev1.ConditionTrue:
		return health{healthySince: available.LastTransitionTime.Time}
	case progressing != nil && progressing.Status == corev1.ConditionTrue &&
		progressing.Reason != "NewReplicaSetAvailable":
		return health{}
	}
	return health{reason: notice.Unavailable, message: available.Message, failingSince: available.LastTransitionTime.Time}
}
