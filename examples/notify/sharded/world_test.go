package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// world is what replicas tell about. Its objects are in namespace, the records in home.
type world struct {
	t               *testing.T
	client          kubernetes.Interface
	home, namespace string
	began           time.Time

	mu   sync.Mutex
	want map[told]bool
	left []*object
}

// object is one that the test made.
type object struct {
	kind, name string
	record     string // its kind and key in the annotation of its record
	count      int    // of notices to all destinations
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}

// kinds is how many are configured.
func (w *world) kinds() int { return 4 }

// expect notes what has to be told of an object.
func (w *world) expect(o *object, event notice.Type, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.count++
	destinations := []string{"audit"}
	if event == notice.Failing || event == notice.Deleted {
		destinations = append(destinations, "ops")
	}
	for _, destination := range destinations {
		what := told{destination: destination, event: string(event), object: o.kind + " " + w.namespace + "/" + o.name, reason: reason}
		for w.want[what] {
			what.nth++
		}
		w.want[what] = true
	}
}

// recorded waits until a replica has seen what was expected. What nobody sees cannot be told: it is gone, or something
// else, before a replica looks.
func (w *world) recorded(o *object) {
	for deadline := time.Now().Add(60 * time.Second); ; w.pause(20 * time.Millisecond) {
		list, err := w.client.CoreV1().ConfigMaps(w.home).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Error(err)
			return
		}
		for _, cm := range list.Items {
			var r struct{ Count int }
			if cm.Annotations["notify.example.com/object"] == o.record &&
				json.Unmarshal([]byte(cm.Data["record"]), &r) == nil && r.Count >= o.count {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%s: no replica has seen it", o.record)
			return
		}
	}
}

// followed waits until replicas follow all kinds. What is older is not told.
func (w *world) followed() {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; w.pause(50 * time.Millisecond) {
		list, err := w.client.CoreV1().ConfigMaps(w.home).List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		n := 0
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "notify-since-") {
				n++
			}
		}
		if n == w.kinds() {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d kinds are followed, want %d", n, w.kinds())
		}
	}
}

// phase has n objects of each kind live while something happens. Every other one is deleted at the end.
func (w *world) phase(name string, n int, happens func()) {
	w.t.Helper()
	begun := time.Now()
	prefix := strings.ReplaceAll(name, " ", "-")
	var wg sync.WaitGroup
	for i := range n {
		for _, live := range []func(string) *object{w.livePod, w.liveConfigMap, w.liveDeployment, w.liveJob} {
			wg.Go(func() {
				w.pause(time.Duration(i) * 150 * time.Millisecond)
				o := live(fmt.Sprintf("%s-%d", prefix, i))
				if w.t.Failed() {
					return
				}
				w.recorded(o)
				if i%2 == 0 {
					w.delete(o)
					return
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.left = append(w.left, o)
			})
		}
	}
	happens()
	wg.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.t.Logf("%s: %s", name, time.Since(begun).Round(100*time.Millisecond))
}

func (w *world) meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func (w *world) check(err error) bool {
	if err != nil {
		w.t.Error(err)
	}
	return err == nil
}

var template = corev1.PodSpec{
	Containers:    []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
	RestartPolicy: corev1.RestartPolicyNever,
}

func (w *world) livePod(name string) *object {
	ctx, api := w.t.Context(), w.client.CoreV1().Pods(w.namespace)
	o := &object{kind: "Pod", name: name, record: "Pod " + w.namespace + "/" + name}
	pod, err := api.Create(ctx, &corev1.Pod{ObjectMeta: w.meta(name), Spec: template}, metav1.CreateOptions{})
	if !w.check(err) {
		return o
	}
	w.expect(o, notice.Created, "")
	w.recorded(o)
	reason := notice.CrashLoopBackOff
	if len(name)%2 == 0 {
		reason = notice.ImagePullBackOff
	}
	// A crash loop: it waits, runs, and waits again. That is one failure.
	for i, state := range []corev1.ContainerState{
		{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 10s"}},
		{Running: &corev1.ContainerStateRunning{}},
		{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 20s"}},
	} {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "example.com/main:1", State: state}}
		if pod, err = api.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); !w.check(err) {
			return o
		}
		if i == 0 {
			w.expect(o, notice.Failing, reason)
			w.recorded(o)
		}
	}
	return o
}

func (w *world) liveConfigMap(name string) *object {
	ctx, api := w.t.Context(), w.client.CoreV1().ConfigMaps(w.namespace)
	o := &object{kind: "ConfigMap", name: name, record: "ConfigMap " + w.namespace + "/" + name}
	cm, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: w.meta(name)}, metav1.CreateOptions{})
	if !w.check(err) {
		return o
	}
	w.expect(o, notice.Created, "")
	w.recorded(o)
	cm.Labels = map[string]string{"metadata": "is-not-told"}
	if cm, err = api.Update(ctx, cm, metav1.UpdateOptions{}); !w.check(err) {
		return o
	}
	cm.Data = map[string]string{"key": "value"}
	if _, err = api.Update(ctx, cm, metav1.UpdateOptions{}); w.check(err) {
		w.expect(o, notice.Changed, "")
	}
	return o
}

func (w *world) liveDeployment(name string) *object {
	ctx, api := w.t.Context(), w.client.AppsV1().Deployments(w.namespace)
	o := &object{kind: "Deployment", name: name, record: "Deployment.apps " + w.namespace + "/" + name}
	labels := map[string]string{"app": name}
	spec := *template.DeepCopy()
	spec.RestartPolicy = corev1.RestartPolicyAlways
	d, err := api.Create(ctx, &appsv1.Deployment{ObjectMeta: w.meta(name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}, metav1.CreateOptions{})
	if !w.check(err) {
		return o
	}
	w.expect(o, notice.Created, "")
	w.recorded(o)
	d.Spec.Template.Spec.Containers[0].Image = "example.com/main:2"
	if d, err = api.Update(ctx, d, metav1.UpdateOptions{}); !w.check(err) {
		return o
	}
	w.expect(o, notice.Changed, "")
	w.recorded(o)
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"},
	}
	if _, err = api.UpdateStatus(ctx, d, metav1.UpdateOptions{}); w.check(err) {
		w.expect(o, notice.Failing, notice.Unavailable)
	}
	return o
}

func (w *world) liveJob(name string) *object {
	ctx, api := w.t.Context(), w.client.BatchV1().Jobs(w.namespace)
	o := &object{kind: "Job", name: name, record: "Job.batch " + w.namespace + "/" + name}
	job, err := api.Create(ctx, &batchv1.Job{ObjectMeta: w.meta(name), Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: template},
	}}, metav1.CreateOptions{})
	if !w.check(err) {
		return o
	}
	now := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &now, Failed: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"},
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"},
	}}
	if _, err = api.UpdateStatus(ctx, job, metav1.UpdateOptions{}); w.check(err) {
		w.expect(o, notice.Failing, notice.JobFailed)
	}
	return o
}

func (w *world) delete(o *object) {
	ctx, now := context.WithoutCancel(w.t.Context()), int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now}
	var err error
	switch o.kind {
	case "Pod":
		err = w.client.CoreV1().Pods(w.namespace).Delete(ctx, o.name, options)
	case "ConfigMap":
		err = w.client.CoreV1().ConfigMaps(w.namespace).Delete(ctx, o.name, options)
	case "Deployment":
		err = w.client.AppsV1().Deployments(w.namespace).Delete(ctx, o.name, options)
	default:
		background := metav1.DeletePropagationBackground
		options.PropagationPolicy = &background
		if w.check(w.client.BatchV1().Jobs(w.namespace).Delete(ctx, o.name, options)) {
			return // of Jobs only failures are told
		}
	}
	if w.check(err) {
		w.expect(o, notice.Deleted, "")
	}
}

// deleteAll deletes what the phases left.
func (w *world) deleteAll() {
	for _, o := range w.left {
		w.delete(o)
	}
	w.left = nil
}

// recordsAreGone waits until no object has a record.
func (w *world) recordsAreGone() {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; w.pause(50 * time.Millisecond) {
		list, err := w.client.CoreV1().ConfigMaps(w.home).List(w.t.Context(),
			metav1.ListOptions{LabelSelector: "notify.example.com/records-of"})
		w.must(err)
		if len(list.Items) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d records are left, such as that of %v", len(list.Items), list.Items[0].Annotations)
		}
	}
}
