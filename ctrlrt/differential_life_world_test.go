package ctrlrt_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/process"
)

// phase is how far the life of a manager has come.
type phase int

const (
	unbegunPhase phase = iota
	heldPhase          // Start waits for a cache
	upPhase            // everything runs
	endingPhase        // Start waits for a runnable that lingers
	overPhase          // Start has returned
)

const (
	// lifeGrace is a GracefulShutdownTimeout that no script waits for.
	lifeGrace = 10 * time.Minute
	// shortGrace is one that scripts wait for.
	shortGrace = 2 * time.Second
	// lifeLease is the LeaseDuration of members. Each makes a table, for which it waits that long.
	lifeLease = 3 * time.Second
	// present is a ConfigMap that is there all the time.
	present = "present"
	// hangs is what is seen of a life that stands still.
	hangs = "it hangs"
	// unserved is what a probe says that nobody serves.
	unserved = "not served"
	// probe is a runnable for every replica that every manager has.
	probe = "the probe"
)

// lifeWorld is a manager, stock or a member's, and what was seen of it.
type lifeWorld struct {
	t         *testing.T
	script    lifeScript
	namespace string
	name      string
	direct    client.Client
	mgr       manager.Manager
	member    *ctrlrt.Manager // nil: it is a stock manager
	options   ctrl.Options
	address   string // of the health probes

	ctx     context.Context
	cancel  context.CancelFunc
	elected <-chan struct{}
	result  chan error // of the first Start
	phase   phase
	later   sync.WaitGroup // calls that wait until the manager has started

	mu         sync.Mutex
	runnables  []*lived
	reconciled bool
	occupied   chan struct{}
	occupy     func()
	facts      map[string]string
}

// newLifeWorld makes a manager with a controller of ConfigMaps.
func newLifeWorld(t *testing.T, script lifeScript, namespace, name string, member bool) (*lifeWorld, error) {
	w := &lifeWorld{t: t, script: script, namespace: namespace, name: name, result: make(chan error, 1),
		occupied: make(chan struct{}), facts: map[string]string{}}
	w.occupy = sync.OnceFunc(func() { close(w.occupied) })
	w.ctx, w.cancel = context.WithCancel(t.Context())
	cfg := controlplane.For(t).Config()
	cfg.QPS = -1
	var err error
	if w.direct, err = client.New(cfg, client.Options{}); err != nil {
		return nil, err
	}
	if script.anothers {
		if err := w.giveAway(t.Context()); err != nil {
			return nil, err
		}
	}
	for range 5 { // another program may take the port
		if w.address, err = process.FreeAddress(t.Context()); err != nil {
			return nil, err
		}
		w.options = w.managerOptions()
		if err = w.make(cfg, member); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if !script.unled || !member {
		w.elected = w.mgr.Elected()
	}
	l := newLived(w, probe, forEveryone, runs)
	w.know(l)
	return w, w.add(l)
}

func (w *lifeWorld) managerOptions() ctrl.Options {
	o := ctrl.Options{
		Logger: funcr.New(func(string, string) {}, funcr.Options{}), Metrics: server.Options{BindAddress: "127.0.0.1:0"},
		HealthProbeBindAddress: w.address,
		LeaderElection:         true, LeaderElectionID: w.name, LeaderElectionNamespace: w.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(w.script.grace),
		WebhookServer:                 webhookServer{electable{newLived(w, "the webhook server", webhooks, runs), false}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 2,
			CacheSyncTimeout: time.Minute, GroupKindConcurrency: map[string]int{"ConfigMap": 2}},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	}
	if w.script.has(aTheft) {
		o.LeaseDuration, o.RenewDeadline = ptr.To(6*time.Second), ptr.To(4*time.Second)
		o.RetryPeriod = ptr.To(500 * time.Millisecond)
	}
	return o
}

func (w *lifeWorld) make(cfg *rest.Config, member bool) error {
	controller := func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(w.reconcile))
	}
	if !member {
		var err error
		if w.mgr, err = ctrl.NewManager(rest.CopyConfig(cfg), w.options); err != nil {
			return err
		}
		return controller(w.mgr)
	}
	r, err := rota.New(cfg, rota.Options{Name: w.name, Namespace: w.namespace, Logger: w.options.Logger,
		Identity: rota.Identity{Pod: "pod"}, LeaseDuration: lifeLease, RetryPeriod: lifeLease / 10,
		LeaveTimeout: w.script.leave(), NoStockReplicas: true})
	if err != nil {
		return err
	}
	o := w.options
	o.LeaderElection = !w.script.unled
	if w.member, err = ctrlrt.NewManager(cfg, r, o); err != nil {
		return err
	}
	w.mgr = w.member
	return ctrlrt.NewControllerManagedBy(w.member).For(&corev1.ConfigMap{}).Complete(reconcile.Func(w.reconcile))
}

// reconcile notes that it was called. That of the ConfigMap that occupies it waits for the end of its context.
func (w *lifeWorld) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w.mu.Lock()
	w.reconciled = true
	w.mu.Unlock()
	if req.Name != w.occupier() {
		return reconcile.Result{}, nil
	}
	w.occupy()
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts["the reconcile in flight is told to stop"] = w.others(leaderGroup)
	return reconcile.Result{}, nil
}

func (w *lifeWorld) occupier() string { return "occupies-" + w.name }

// giveAway has another one hold the Lease of the election.
func (w *lifeWorld) giveAway(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name}}
	spec := coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600),
		AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()), LeaseTransitions: ptr.To[int32](7)}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its holder renews it
		err := w.direct.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		lease.Spec = spec
		if apierrors.IsNotFound(err) {
			return w.direct.Create(ctx, lease)
		}
		if err != nil {
			return err
		}
		return w.direct.Update(ctx, lease)
	})
}

// hides reports whether it is chance how far a runnable came: the manager ended while it started.
func (w *lifeWorld) hides(l *lived) bool {
	return l.chance || w.script.hasty() && (l.group == leaderGroup || l.group == serversGroup)
}

// fact notes what was seen in a step.
func (w *lifeWorld) fact(name, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[name] = fmt.Sprintf(format, args...)
}

// add adds a runnable that the world knows.
func (w *lifeWorld) add(l *lived) error {
	err := w.mgr.Add(l.runnable())
	w.mu.Lock()
	defer w.mu.Unlock()
	l.told = about(err)
	return err
}

// know has the world know a runnable, before it is added.
func (w *lifeWorld) know(l *lived) {
	l.chance = w.phase == heldPhase && w.script.hasty() || w.phase == overPhase && !w.script.ordered()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.runnables, l) {
		w.runnables = append(w.runnables, l)
	}
}

// starts reports whether a runnable that was added by now starts, or has.
func (w *lifeWorld) starts(l *lived) bool {
	if l.told != "no error" || w.hides(l) {
		return false
	}
	switch {
	case w.phase == heldPhase:
		return l.group >= cachesGroup
	case l.group == leaderGroup && w.script.anothers:
		return false
	case w.phase == endingPhase:
		return w.script.ordered() && w.lingering() <= serversGroup && l.group > w.lingering()
	}
	return w.phase == upPhase
}

// unrest says what is still to come before the next step; "": nothing. For callers that hold w.mu.
func (w *lifeWorld) unrest() string {
	for _, l := range w.runnables {
		switch {
		case w.starts(l) && !l.started:
			return l.name + " has not started"
		case w.starts(l) && (l.way == returns || l.way == fails) && !l.ended, l.finishing && !l.ended:
			return l.name + " has not ended"
		case l.warms() && w.phase == upPhase && l.told == "no error" && !l.warmed && !l.chance:
			return l.name + " is not warm"
		}
	}
	switch w.phase {
	case upPhase:
		return w.unready()
	case endingPhase:
		return w.untold()
	default: // nothing more is awaited
		return ""
	}
}

// unready says what a manager that starts has not done yet.
func (w *lifeWorld) unready() string {
	if w.elected != nil && !w.script.anothers && !isClosed(w.elected) {
		return "not elected"
	}
	if w.member != nil && !isClosed(w.member.Rota().Joined()) {
		return "not joined"
	}
	if (w.member != nil || !w.script.anothers) && !w.reconciled {
		return "nothing was reconciled"
	}
	return ""
}

// untold says which runnables must still stop before the manager waits for those that linger.
func (w *lifeWorld) untold() string {
	last := w.lingering()
	for _, l := range w.runnables {
		switch {
		case !l.started || l.ended || l.group > last:
		case l.group < last || l.way != lingers:
			return l.name + " has not ended"
		case !l.stopped:
			return l.name + " was not told to stop"
		}
	}
	return ""
}

// lingering returns the first group in which a runnable lingers.
func (w *lifeWorld) lingering() int {
	last := serversGroup + 1
	for _, l := range w.runnables {
		if l.way == lingers && l.started && !l.ended && !isClosed(l.released) && !w.hides(l) {
			last = min(last, l.group)
		}
	}
	return last
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await waits until a check returns "". The error says what is missing after a while.
func (w *lifeWorld) await(check func() string) error {
	return await.Until(w.t.Context(), 5*time.Millisecond, hang, check)
}

// rest waits until what the last step began has come about, and notes what runs now.
func (w *lifeWorld) rest(step string) error {
	if err := w.await(w.settle); err != nil {
		w.fact("after "+step, "%s: %v", hangs, err)
		return fmt.Errorf("%s: %w", step, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.script.ordered() && w.phase == overPhase {
		return nil // what was not waited for ends some time
	}
	var running, done []string
	for _, l := range w.runnables {
		switch {
		case w.hides(l) || !l.started:
		case l.ended:
			done = append(done, l.name)
		default:
			running = append(running, l.name)
		}
	}
	slices.Sort(running)
	slices.Sort(done)
	w.facts["after "+step] = fmt.Sprintf("running: %s; ended: %s", strings.Join(running, ", "), strings.Join(done, ", "))
	return nil
}

// settle says what is still to come; a manager that ends by itself is not waited for.
func (w *lifeWorld) settle() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-w.result:
		w.phase = overPhase
		w.facts["Start"] = about(err)
	default:
	}
	if w.phase == endingPhase && (w.lingering() > serversGroup || !w.script.ordered()) {
		return "Start has not returned"
	}
	return w.unrest()
}

// ends has the manager end.
func (w *lifeWorld) ends() {
	if w.phase == heldPhase || w.phase == upPhase {
		w.phase = endingPhase
	}
}

// start begins the manager's life.
func (w *lifeWorld) start() {
	go func() { w.result <- w.mgr.Start(w.ctx) }()
	w.phase = upPhase
	switch {
	case slices.ContainsFunc(w.runnables, func(l *lived) bool { return l.kind == hasASlowCache && !isClosed(l.released) }):
		w.phase = heldPhase
	case w.ctx.Err() != nil || w.failing():
		w.phase = endingPhase
	}
}

// failing reports whether a runnable fails as soon as it starts.
func (w *lifeWorld) failing() bool {
	return slices.ContainsFunc(w.runnables, func(l *lived) bool {
		return l.way == fails && l.told == "no error" && (l.group != leaderGroup || !w.script.anothers)
	})
}

// release lets runnables go on that wait for it.
func (w *lifeWorld) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.runnables {
		l.release()
	}
	if w.phase == heldPhase {
		w.phase = upPhase
		if w.ctx.Err() != nil || w.failing() {
			w.phase = endingPhase
		}
	}
}

// call makes a call whose answer may wait until the manager has started.
func (w *lifeWorld) call(name string, f func() string) {
	answer := func() (out string) {
		defer func() {
			if p := recover(); p != nil {
				out = "panic"
			}
		}()
		return f()
	}
	if w.phase != heldPhase {
		if a := answer(); w.script.ordered() || w.phase != overPhase { // what the manager did not wait for may still run
			w.fact(name, "%s", a)
		}
		return
	}
	w.later.Go(func() {
		if a := answer(); !w.script.hasty() {
			w.fact(name, "%s", a)
		}
	})
}

// live plays the script, and returns the facts.
func (w *lifeWorld) live() map[string]string {
	err := w.play()
	if w.release(); err == nil && w.phase == upPhase {
		err = w.rest("all is released")
	}
	w.cancel()
	if w.phase != unbegunPhase && err == nil {
		w.ends()
		_ = w.rest("the end")
	}
	w.later.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.runnables {
		if _, has := w.facts[l.name]; !has && !w.hides(l) {
			w.facts[l.name] = map[bool]string{true: "started", false: "never started"}[l.started]
		}
		if l.warms() && !l.chance {
			w.facts[l.name+" is warm"] = fmt.Sprint(l.warmed)
		}
	}
	if !w.script.hasty() && w.phase != unbegunPhase {
		w.facts["something was reconciled"] = fmt.Sprint(w.reconciled)
	}
	return maps.Clone(w.facts)
}

func (w *lifeWorld) play() error {
	for n, s := range w.script.steps {
		name := fmt.Sprintf("step %d, %v", n+1, s)
		w.step(n+1, name, s)
		if err := w.rest(name); err != nil {
			return err
		}
	}
	return nil
}
