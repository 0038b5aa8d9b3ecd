package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
)

// Autoscale is a story in which a HorizontalPodAutoscaler says how many replicas there are: the load grows for a while,
// and shrinks again. The controller of kube-controller-manager for it runs as it is. The demo does what the controllers
// of Deployments, a scheduler and a kubelet do. Options.Objects and Options.Rate must be given.
type Autoscale struct {
	// Scaler is the autoscaler of a Deployment. The demo puts it into its own namespace.
	Scaler autoscalingv2.HorizontalPodAutoscaler
	// Sync is the time between two decisions of the autoscaler; 15 s by default in a cluster.
	Sync time.Duration
	// Work is how much longer a reconcile takes, once all Websites are there: it waits, as one that asks another service.
	// So replicas need little of the machine, and run out of workers.
	Work time.Duration
	// Burst is how many Websites are updated per second, beside the load, for BurstLength.
	Burst       float64
	BurstLength time.Duration
	// Limit bounds the time from the end of the burst until the fewest replicas are left.
	Limit time.Duration
	// Metrics starts what answers the autoscaler's questions, from the metrics at the addresses that pods returns, by the
	// names of the Pods, and waits until it answers. It ends with ctx.
	Metrics func(ctx context.Context, plane *controlplane.ControlPlane, pods func() map[string]string) error
}

const (
	// podPeriod is the time between two looks at the Deployment.
	podPeriod = 200 * time.Millisecond
)

// podLabels are the labels of the replicas' Pods.
var podLabels = map[string]string{"app.kubernetes.io/name": "website"}

// Story is the story.
func (a *Autoscale) Story(ctx context.Context, s *Show) error {
	fewest := ptr.Deref(a.Scaler.Spec.MinReplicas, 1)
	if a.Scaler.Spec.MaxReplicas <= fewest || s.Cluster.Plane == nil {
		return fmt.Errorf("autoscaler from %d to %d replicas: needs more at most than at least, and no kubeconfig",
			fewest, a.Scaler.Spec.MaxReplicas)
	}
	s.Load.Patience = a.BurstLength + a.Limit // it is overloaded on purpose
	d := &deployment{Show: s, key: client.ObjectKey{Namespace: Namespace, Name: a.Scaler.Spec.ScaleTargetRef.Name}}
	manager, err := a.startManager(ctx, s)
	if err != nil {
		return err
	}
	defer manager.Kill()
	if err := s.Cluster.Create(ctx, d.object(fewest)); err != nil {
		return err
	}
	scaling, end := context.WithCancel(ctx)
	defer end()
	s.Background.Go(func() { d.run(scaling) })
	if err := s.Fill(ctx); err != nil {
		return err
	}
	if err := d.settled(ctx, fewest, 2*time.Minute); err != nil {
		return err
	}
	if err := a.Metrics(ctx, s.Cluster.Plane, d.addresses); err != nil { // some exist since the first reconcile only
		return err
	}
	if err := d.slowDown(a.Work); err != nil {
		return err
	}
	scaler := a.Scaler.DeepCopy()
	scaler.ObjectMeta = metav1.ObjectMeta{Name: scaler.Name, Namespace: Namespace}
	if err := s.Cluster.Create(ctx, scaler); err != nil {
		return err
	}
	if err := s.Undisturbed(ctx, s.o.Baseline); err != nil {
		return err
	}
	s.Log("a burst of %v updates per second, for %v", a.Burst, a.BurstLength)
	if err := s.Timed("grow", func(*judge.Phase) error { return a.burst(ctx, s) }); err != nil {
		return err
	}
	s.Log("the burst has ended")
	if err := s.Timed("shrink", func(*judge.Phase) error { return d.settled(ctx, fewest, a.Limit) }); err != nil {
		return err
	}
	d.mu.Lock()
	wanted := slices.Clone(d.wanted)
	d.mu.Unlock()
	s.tell(scalingVerdicts(wanted, a.Scaler.Spec.MaxReplicas)...)
	return manager.Failure()
}

// startManager starts the controller of autoscalers.
func (a *Autoscale) startManager(ctx context.Context, s *Show) (*process.Process, error) {
	binary, err := build.Binary(ctx, s.Progress)
	if err != nil {
		return nil, err
	}
	return process.Start(process.Options{
		Name: "kube-controller-manager", Log: filepath.Join(s.Dir, "kcm.log"), Variable: "ROTA_UNUSED",
		Command: []string{
			binary, "controller-manager", "--kubeconfig=" + s.Cluster.Plane.Kubeconfig(), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=0", "--cert-dir=" + s.Dir,
			"--controllers=horizontal-pod-autoscaler-controller",
			"--horizontal-pod-autoscaler-sync-period=" + a.Sync.String(), "--kube-api-qps=500", "--kube-api-burst=1000",
		},
	})
}

// burst updates Websites beside the load.
func (a *Autoscale) burst(ctx context.Context, s *Show) error {
	burst, end := context.WithTimeout(ctx, a.BurstLength)
	defer end()
	each := time.Duration(float64(time.Second) / a.Burst)
	s.Load.Tick(burst, func() time.Duration { return each }, func() {
		s.Load.Start(ctx, s.Load.Of(slot.Set{}), s.Load.Update)
	})
	<-burst.Done()
	return ctx.Err()
}

// deployment runs the Pods of a Deployment as replicas. Its goroutine is run's.
type deployment struct {
	*Show
	key client.ObjectKey

	mu     sync.Mutex
	hosted []*hosted
	work   time.Duration
	// wanted are the numbers of replicas that the autoscaler wanted, one after the other.
	wanted []int32
}

// hosted is a Pod with its process and the address of its metrics.
type hosted struct {
	*rig.Replica
	object  *corev1.Pod
	address string
	ready   bool
}

func (d *deployment) object(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: d.key.Name, Namespace: d.key.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: podLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "website-operator"}}},
			},
		},
	}
}

// run follows the Deployment until ctx ends. An API server that is busy is asked again.
func (d *deployment) run(ctx context.Context) {
	for await.Sleep(ctx, podPeriod) == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			d.Log("the Deployment: %v", err)
		}
	}
}

// follow starts or ends replicas, and reports how many there are and which are ready.
func (d *deployment) follow(ctx context.Context) error {
	var object appsv1.Deployment
	if err := d.Cluster.Client.Get(ctx, d.key, &object); err != nil {
		return err
	}
	wanted := ptr.Deref(object.Spec.Replicas, 1)
	if n := len(d.wanted); n == 0 || d.wanted[n-1] != wanted {
		d.Log("%d replicas are wanted; %d run", wanted, len(d.hosted))
		d.mu.Lock()
		d.wanted = append(d.wanted, wanted)
		d.mu.Unlock()
	}
	var err error
	for n := len(d.hosted); n < int(wanted) && err == nil; n++ {
		err = d.add(ctx)
	}
	for len(d.hosted) > int(wanted) && err == nil {
		err = d.remove(ctx)
	}
	for _, h := range d.hosted {
		if !h.ready && d.Absent(h.Pod) == "" {
			err = errors.Join(err, d.report(ctx, h, corev1.ConditionTrue))
			h.ready = true
		}
	}
	object.Status.Replicas, object.Status.ObservedGeneration = int32(len(d.hosted)), object.Generation
	return errors.Join(err, d.Cluster.Client.Status().Update(ctx, &object))
}

func (d *deployment) add(ctx context.Context) error {
	address, err := process.FreeAddress(ctx)
	if err != nil {
		return err
	}
	p, err := d.Fleet.Start(ctx, nil, func(o *rig.Operator) { o.Metrics = address })
	if err != nil {
		return err
	}
	d.mu.Lock()
	h := &hosted{Replica: p, address: address}
	d.hosted = append(d.hosted, h)
	work := d.work
	d.mu.Unlock()
	template := d.object(0).Spec.Template
	h.object = &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	h.object.Name, h.object.Namespace = p.Pod, d.key.Namespace
	if err := d.Cluster.Create(ctx, h.object); err != nil {
		return err
	}
	return errors.Join(d.report(ctx, h, corev1.ConditionFalse), p.Work(work))
}

// remove ends the newest replica.
func (d *deployment) remove(ctx context.Context) error {
	d.mu.Lock()
	h := d.hosted[len(d.hosted)-1]
	d.hosted = d.hosted[:len(d.hosted)-1]
	d.mu.Unlock()
	return errors.Join(h.Leave(), d.Cluster.Client.Delete(ctx, h.object, client.GracePeriodSeconds(0)))
}

// report reports that a Pod runs, and whether it is ready.
func (d *deployment) report(ctx context.Context, h *hosted, ready corev1.ConditionStatus) error {
	h.object.Status.Phase, h.object.Status.StartTime = corev1.PodRunning, ptr.To(metav1.Now())
	h.object.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Now()},
	}
	return d.Cluster.Client.Status().Update(ctx, h.object)
}

// addresses returns where the metrics of the Pods are.
func (d *deployment) addresses() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]string{}
	for _, h := range d.hosted {
		out[h.Pod] = h.address
	}
	return out
}

// slowDown makes the reconciles of all replicas take longer from now on.
func (d *deployment) slowDown(work time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work = work
	var err error
	for _, h := range d.hosted {
		err = errors.Join(err, h.Work(work))
	}
	return err
}

// settled waits until so many replicas are wanted, run, and share the slots.
func (d *deployment) settled(ctx context.Context, n int32, limit time.Duration) error {
	err := await.Until(ctx, podPeriod, limit, func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.wanted) == 0 || d.wanted[len(d.wanted)-1] != n || len(d.hosted) != int(n) {
			return fmt.Sprintf("%d replicas run, want %d; wanted were %v", len(d.hosted), n, d.wanted)
		}
		return ""
	})
	if err != nil {
		return err
	}
	return d.Quiet(ctx)
}

// scalingVerdicts judge whether the autoscaler did what it should, by the numbers that it wanted one after the other:
// up to the most once, and down to the fewest once.
func scalingVerdicts(wanted []int32, most int32) []judge.Claim {
	peak, turns, up := wanted[0], 0, false
	for i, n := range wanted[1:] {
		peak = max(peak, n)
		if grows := n > wanted[i]; turns == 0 || grows != up {
			turns, up = turns+1, grows
		}
	}
	fewest, last := wanted[0], wanted[len(wanted)-1]
	return []judge.Claim{
		judge.ClaimOf(peak == most, fmt.Sprintf("the autoscaler went from %d to %d replicas in the burst", fewest, peak),
			fmt.Sprintf("the autoscaler went to %d replicas in the burst, not to %d", peak, most)),
		judge.ClaimOf(turns == 2 && last == fewest, fmt.Sprintf("it went up once, and down to %d once", fewest),
			fmt.Sprintf("it changed its direction: %d ways up or down, not 2, to %d replicas", turns, last)),
	}
}
