// Package memory keeps things in memory in many ways.
package memory

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func setup(mgr ctrl.Manager) {
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(newKeeper(mgr)) // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reader{             // want `^ShardedController:`
		Client: mgr.GetClient(), labels: map[string]string{}, limits: &limits{}, mu: &sync.Mutex{}})
	seen := map[string]bool{}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func( // want `^DutyController:`
		func(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
			seen[req.Name] = true // want `^Memory:`
			return ctrl.Result{}, nil
		}))
}

type cache struct {
	sync.Mutex
	of map[string]string
}

func (c *cache) put(name string) {
	c.Lock()
	defer c.Unlock()
	c.of[name] = name // want `^Memory:`
}

type store interface{ note(name string) }

type notes struct{ list []string }

func (n *notes) note(name string) { n.list = append(n.list, name) } // want `^Memory:`

type named map[string]string

type keeper struct {
	client.Client
	cache   *cache
	store   store
	named   named
	counts  []int
	set     sets.Set[string]
	total   int
	started atomic.Bool
	once    sync.Once
	wake    chan string
	number  int64
	sync.Map
}

func newKeeper(mgr ctrl.Manager) *keeper {
	k := &keeper{Client: mgr.GetClient(), cache: &cache{of: map[string]string{}}, store: &notes{}}
	k.named = named{} // a constructor keeps nothing
	return k
}

var (
	order  []string
	global sync.Map
	last   string
	noted  map[string]bool
)

func (r *keeper) Reconcile(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.cache.put(req.Name)
	r.store.note(req.Name)
	r.named[req.Name] = "y" // want `^Memory:`
	r.counts[0]++           // want `^Memory:`
	r.set.Insert(req.Name)  // want `^Memory:`
	r.total++               // want `^Memory:`
	r.once.Do(func() {      // want `^Memory:`
		r.started.Store(true) // want `^Memory:`
	})
	r.wake <- req.Name              // want `^Memory:`
	atomic.AddInt64(&r.number, 1)   // want `^Memory:`
	r.Store(req.Name, true)         // want `^Memory:`
	order = append(order, req.Name) // want `^Memory:`
	global.Store(req.Name, true)    // want `^Memory:`
	last = req.Name                 // want `^Memory:`
	alias := r.named
	delete(alias, req.Name) // want `^Memory:`
	fill(r.named, req.Name)
	if at, ok := global.Load("at"); ok {
		at.(*notes).list = nil // want `^Memory:`
	}
	work := &scope{r: r, left: map[string]bool{}}
	work.left[req.Name] = true // of this reconcile
	shared(noted, req.Name)
	work.r.named["x"] = "" // want `^Memory:`
	return ctrl.Result{}, nil
}

func fill(m map[string]string, name string) { m[name] = "" } // want `^Memory:`

type scope struct {
	r    *keeper
	left map[string]bool
}

type limits struct{ most int }

// reader writes nothing that stays, but for what it reads.
type reader struct {
	client.Client
	labels map[string]string
	limits *limits
	local  int
	mu     *sync.Mutex
}

func (r reader) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.local++ // the receiver is a copy
	var pod corev1.Pod
	if err := r.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, err
	}
	for k, v := range r.labels {
		pod.Labels[k] = v
	}
	most := *r.limits
	most.most++
	counts := map[string]int{}
	counts[req.Name]++
	count(counts)
	done := 0
	for _, s := range []step{{func() { done++ }}, {func() { counts["x"]++ }}} { // of this reconcile, too
		s.run()
	}
	shared(map[string]bool{}, req.Name)
	return ctrl.Result{}, r.Delete(ctx, &pod)
}

type step struct{ run func() }

// shared writes what keeper keeps and reader does not.
func shared(left map[string]bool, name string) { left[name] = true } // want `^Memory:`

func count(counts map[string]int) { counts["all"] = len(counts) }
