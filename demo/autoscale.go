package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/process"
)

// Autoscale is a story in which a HorizontalPodAutoscaler says how many replicas there are: the load grows for a while,
// and shrinks again. The controllers of kube-controller-manager for it, for Deployments and for ReplicaSets run as they
// are. The demo does what a scheduler and a kubelet do.
type Autoscale struct {
	// Scaler is the autoscaler, of a Deployment in any namespace: the demo has its own.
	Scaler autoscalingv2.HorizontalPodAutoscaler
	// Sync is the time between two decisions of the autoscaler; 15 s by default in a cluster.
	Sync time.Duration
	// Work is how much longer a reconcile takes than it would, once all Websites are there: it waits, as one that asks
	// another service. So replicas need little of the machine, and their workers are what there is too little of.
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

func (a *Autoscale) validate() error {
	switch {
	case a.Metrics == nil:
		return errors.New("autoscale: nobody serves its metrics")
	case a.Sync < 100*time.Millisecond, a.Work < 0, a.BurstLength <= 0, a.Limit <= 0:
		return fmt.Errorf("autoscale: sync %v must be at least 100ms, work %v at least 0, burst length %v and limit %v "+
			"above 0", a.Sync, a.Work, a.BurstLength, a.Limit)
	case !(a.Burst > 0 && a.Burst <= 1000):
		return fmt.Errorf("autoscale: burst %v: must be above 0 and at most 1000 per second", a.Burst)
	case a.fewest() < 1 || a.Scaler.Spec.MaxReplicas <= a.fewest():
		return fmt.Errorf("autoscaler %s: from %d to %d replicas: the demo needs at least 1, and more at most than at least",
			a.Scaler.Name, a.fewest(), a.Scaler.Spec.MaxReplicas)
	}
	return nil
}

func (a *Autoscale) fewest() int32 { return ptr.Deref(a.Scaler.Spec.MinReplicas, 1) }

// podLabels are those of the replicas' Pods.
var podLabels = map[string]string{"app.kubernetes.io/name": "website"}

// autoscaling is the story of Options.Autoscale.
func (e *engine) autoscaling(ctx, loading, later context.Context) error {
	a := e.o.Autoscale
	e.view.title("setting up")
	e.view.log("Starting the controllers of kube-controller-manager, and %d replicas.", a.fewest())
	d := a.deployment()
	if err := e.cluster.Create(ctx, d); err != nil {
		return err
	}
	if err := e.manage(ctx); err != nil {
		return err
	}
	k := &kubelet{e: e, deployment: d.Name, pods: map[string]*hosted{}}
	watching, end := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()
	watchers.Go(func() { k.run(watching) })
	err := until(ctx, stepLimit, func() string {
		if n := len(e.live()); n != int(a.fewest()) {
			return fmt.Sprintf("%d replicas run, want %d", n, a.fewest())
		}
		return ""
	})
	if err != nil {
		return err
	}
	if err := e.fill(ctx); err != nil {
		return err
	}
	if err := e.quiet(ctx); err != nil {
		return fmt.Errorf("the first replicas do not share the slots: %w", err)
	}
	if err := a.Metrics(ctx, e.cluster.Plane, k.addresses); err != nil { // some exist since the first reconcile only
		return err
	}
	e.view.title("undisturbed, for comparison")
	if err := e.slowDown(); err != nil {
		return err
	}
	e.load.run(loading, later, e.o.Rate)
	scaler := a.Scaler.DeepCopy()
	scaler.ObjectMeta = metav1.ObjectMeta{Name: scaler.Name, Namespace: rotaNamespace}
	if err := e.cluster.Create(ctx, scaler); err != nil {
		return err
	}
	watchers.Go(func() { k.watch(watching) })
	e.baseline.begin()
	if err := await.Sleep(ctx, e.o.Baseline); err != nil {
		return err
	}
	e.baseline.finish()

	e.view.title(fmt.Sprintf("a burst of %v updates per second, for %v", a.Burst, a.BurstLength))
	err = e.scaled("grow", func() error {
		burst, end := context.WithTimeout(loading, a.BurstLength)
		defer end()
		each := time.Duration(float64(time.Second) / a.Burst)
		e.load.Tick(burst, func() time.Duration { return each }, func() {
			e.load.Start(ctx, e.load.of(slot.Set{}), e.load.Update)
		})
		<-burst.Done()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	e.view.title("the burst has ended")
	return e.scaled("shrink", func() error {
		err := until(ctx, a.Limit, func() string {
			if n := k.desired(); n != a.fewest() {
				return fmt.Sprintf("the autoscaler wants %d replicas still, not %d", n, a.fewest())
			}
			if n := len(e.live()); n != int(a.fewest()) { // the Deployment follows
				return fmt.Sprintf("%d replicas run, want %d", n, a.fewest())
			}
			return ""
		})
		if err != nil {
			return err
		}
		return e.quiet(ctx)
	})
}

// slowDown has the reconciles of all replicas take longer from now on.
func (e *engine) slowDown() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slow = true
	for _, p := range e.procs {
		if err := p.Say(sayWork + e.o.Autoscale.Work.String()); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) scaled(name string, do func() error) error {
	p := &phaseRun{name: name, sites: e.load.Sites()}
	p.begin()
	if err := do(); err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	p.finish()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phases = append(e.phases, p)
	return nil
}

func (a *Autoscale) deployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: a.Scaler.Spec.ScaleTargetRef.Name, Namespace: rotaNamespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(a.fewest()),
			Selector: &metav1.LabelSelector{MatchLabels: podLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](60),
					Containers:                    []corev1.Container{{Name: "operator", Image: "website-operator"}},
				},
			},
		},
	}
}

// manage runs the controllers that scale Deployments, until ctx ends.
func (e *engine) manage(ctx context.Context) error {
	binary, err := build.Binary(ctx, e.o.Progress)
	if err != nil {
		return err
	}
	p, err := process.Start(process.Options{
		Name: "kube-controller-manager", Log: filepath.Join(e.dir, "kcm.log"), Variable: "ROTA_UNUSED",
		Command: []string{
			binary, "controller-manager", "--kubeconfig=" + e.cluster.Plane.Kubeconfig(), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=0", "--cert-dir=" + e.dir,
			"--controllers=deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller",
			"--horizontal-pod-autoscaler-sync-period=" + e.o.Autoscale.Sync.String(),
			"--kube-api-qps=500", "--kube-api-burst=1000",
		},
	})
	if err != nil {
		return err
	}
	e.manager = p
	return nil
}

// Scaled is how many replicas there were at some time.
type Scaled struct {
	// Seconds are since the start of the burst.
	Seconds float64 `json:"seconds"`
	// Wanted is what the autoscaler wants, Running how many processes there are that have not been told to end, Members
	// how many the table names.
	Wanted  int32 `json:"wanted"`
	Running int   `json:"running"`
	Members int   `json:"members"`
	// Metrics are the values that the autoscaler saw, averages over the Pods.
	Metrics map[string]float64 `json:"metrics"`

	at time.Duration
}

// judgeScaling fills in what the autoscaler did.
func (e *engine) judgeScaling(r *Report) {
	a := e.o.Autoscale
	r.Fewest, r.Most = a.fewest(), a.Scaler.Spec.MaxReplicas
	burst := e.baseline.end
	for _, p := range e.phases {
		if p.name == "grow" {
			burst = p.start
		}
	}
	direction := 0
	var last *Scaled
	for i := range e.scaling {
		s := &e.scaling[i]
		s.Seconds = (s.at - burst).Round(100 * time.Millisecond).Seconds()
		r.Peak = max(r.Peak, s.Wanted)
		if last != nil {
			turn := cmp.Compare(s.Wanted, last.Wanted)
			if turn != 0 && turn != direction {
				direction = turn
				r.Turns++
			}
		}
		last = s
	}
	r.Scaling = e.scaling
}

// scalingVerdicts say whether the autoscaler did what it should: up once, and down once.
func (r *Report) scalingVerdicts() []verdict.Verdict {
	return []verdict.Verdict{
		verdict.Of(r.Peak == r.Most, fmt.Sprintf("the autoscaler went from %d to %d replicas in the burst", r.Fewest, r.Peak),
			fmt.Sprintf("the autoscaler went to %d replicas in the burst, not to %d", r.Peak, r.Most)),
		verdict.Of(r.Turns == 2, fmt.Sprintf("it went up once, and down to %d once", r.Fewest),
			fmt.Sprintf("it changed its direction: %d ways up or down, not 2", r.Turns)),
		verdict.Of(int32(r.Members) == r.Fewest, fmt.Sprintf("%d members were left", r.Members),
			fmt.Sprintf("%d members were left, not %d", r.Members, r.Fewest)),
	}
}
