package bench

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/stage"
)

// workload is what replicas run: objects, their controller, and changes that it reconciles.
type workload interface {
	// kinds are those of the objects. Objects of the first are the main ones; each owns one of each other kind.
	kinds() []client.Object
	// fill makes n main objects, with all that belongs to them.
	fill(ctx context.Context, r *runner, n int) error
	// controllers are what a replica with a manager runs. The first is that of the main objects.
	controllers(mgr manager.Manager, c *operatorConfig) []controlled
	// create makes a main object, and change changes one. n is another number each time, and greater. They return the
	// version that the object has then.
	create(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (version int64, err error)
	change(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (version int64, err error)
	// shows is the kind whose objects, named as the main ones, show the version that was reconciled, and shown that
	// version.
	shows() client.Object
	shown(obj client.Object) int64
}

// controlled is a controller with its reconciler.
type controlled struct {
	stage.Controller
	reconciler reconcile.Reconciler
}

// flooder is a workload with another controller, of other objects, which can be flooded.
type flooder interface {
	// flood changes the other objects until ctx ends.
	flood(ctx context.Context, c client.Client) error
}

// Workload is a workload by its name.
type Workload struct {
	// Name is for flags and results. About says what it is.
	Name, About string
	// Env are the replicas' environment variables, beside those of all.
	Env []string

	workload
}

// Workloads are all that there are.
func Workloads() []Workload {
	return []Workload{
		{"websites", fmt.Sprintf("The [example](../examples/website): Websites of %d bytes, each with a Deployment, a "+
			"Service and a ConfigMap. A change is one of a Website's title, and is reconciled when its status says so.",
			cluster.WebsiteBytes), nil, websites{}},
		{"pairs", "Secrets of 300 bytes, each with a ConfigMap that its controller makes. A change is one of a Secret, and " +
			"is reconciled when the ConfigMap shows it. They have the labels of a sharder when the run begins.", nil, pairs{}},
		{"calls", fmt.Sprintf("Websites of %d bytes whose controller waits %v, as for another system, and writes the "+
			"status; each replica has %d workers.", cluster.WebsiteBytes, callTime, callWorkers), nil, calls{}},
		{"pods", fmt.Sprintf("Pods of %d to %d KB, as many of each size. A change is one of a status, and is reconciled "+
			"when an annotation says so.", podLeast>>10, podMost>>10), nil, pods{}},
		{"neighbors", fmt.Sprintf("Secrets, whose controller answers a change with an annotation, and beside them %d "+
			"ConfigMaps with a controller that does the same and computes for some 10 ms. Each replica has one processor "+
			"(`GOMAXPROCS=1`).", floodObjects), []string{"GOMAXPROCS=1"}, neighbors{}},
	}
}

// ParseWorkload returns the one of a name.
func ParseWorkload(name string) (Workload, error) {
	var all []string
	for _, w := range Workloads() {
		if w.Name == name {
			return w, nil
		}
		all = append(all, w.Name)
	}
	return Workload{}, fmt.Errorf("workload %q: must be one of %s", name, strings.Join(all, ", "))
}

// perMain is how many objects there are for a main one, itself included.
func (w *Workload) perMain() int { return len(w.kinds()) }

// lists are empty lists of the kinds.
func (w *Workload) lists() (out []client.ObjectList) {
	for _, gvk := range w.gvks() {
		list, err := stage.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		utilruntime.Must(err) // the scheme has all of them
		out = append(out, list.(client.ObjectList))
	}
	return out
}

// resources are the lists by the names of the kinds in counts of requests.
func (w *Workload) resources() map[string]client.ObjectList {
	out, lists := map[string]client.ObjectList{}, w.lists()
	for i, gvk := range w.gvks() {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		out[plural.Resource] = lists[i]
	}
	return out
}

func (w *Workload) gvks() (out []schema.GroupVersionKind) {
	for _, obj := range w.kinds() {
		gvk, err := apiutil.GVKForObject(obj, stage.Scheme())
		utilruntime.Must(err) // the scheme has all of them
		out = append(out, gvk)
	}
	return out
}
