package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/rig/journal"
)

const (
	// functionDuty is a function, controllerDuty a controller that is not sharded. Each writes to the ConfigMap of its
	// name, in the namespace of the Websites. Replicas of earlier releases (test/rig/skew) have duties of these names.
	functionDuty, controllerDuty = "pages", "websites"
	// dutyPeriod is the time between two writes of a duty.
	dutyPeriod = 200 * time.Millisecond
	// dutyNamespace is in the journal what tells a run of a duty from a reconcile.
	dutyNamespace = "duty"
	// dutyField is the field of the ConfigMap that tells who wrote it.
	dutyField = "by"
)

// DutyNames are the duties of the operator.
var DutyNames = []string{functionDuty, controllerDuty}

// dutyObject is what a duty writes to.
func dutyObject(sites, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: sites, Name: name}}
}

// IsDutyWrite returns a function that matches the writes of a duty.
func IsDutyWrite(name string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/"+name)
	}
}

// duties do not ask for the version that they overwrite, so a write that comes late does harm. Each run is journaled. A
// write that fails is not repeated: the next one comes soon.
type duties struct {
	worker
	sites string
}

func (d *duties) declare(mgr manager.Manager, r *rota.Rota) error {
	if err := r.Duty(functionDuty, d.run); err != nil {
		return err
	}
	started := predicate.Funcs{ // its own writes are no reason to write
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetName() == controllerDuty },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	return ctrlrt.NewDutyControllerManagedBy(mgr).Named(controllerDuty).
		For(&corev1.ConfigMap{}, builder.WithPredicates(started)).Complete(d)
}

func (d *duties) start(ctx context.Context, name string, version int64) (n uint64, end func()) {
	epoch, _ := gate.EpochFrom(ctx)
	return d.journal.Start(journal.Now(), types.NamespacedName{Namespace: dutyNamespace, Name: name}, name, version, epoch)
}

// run is the function. After a handover began it writes once more, as one does that stores its state.
func (d *duties) run(ctx context.Context) error {
	n, end := d.start(ctx, functionDuty, 0)
	defer end()
	for i := 0; ; i++ {
		_ = d.write(ctx, functionDuty, n, i)
		if await.Sleep(ctx, dutyPeriod) == nil {
			continue
		}
		if !errors.Is(context.Cause(ctx), gate.ErrHandover) {
			return nil
		}
		ctx = context.WithoutCancel(ctx)
		time.Sleep(workTime)
		_ = d.write(ctx, functionDuty, n, i+1)
		return nil
	}
}

// Reconcile implements reconcile.Reconciler: it is the controller.
func (d *duties) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &corev1.ConfigMap{}
	if err := d.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, err
	}
	version, err := strconv.ParseInt(obj.ResourceVersion, 10, 64)
	if err != nil {
		return reconcile.Result{}, err
	}
	n, end := d.start(ctx, controllerDuty, version)
	defer end()
	_ = d.write(ctx, controllerDuty, n, 0)
	return ctrl.Result{RequeueAfter: dutyPeriod}, nil
}

// write makes the i-th write of the n-th run.
func (d *duties) write(ctx context.Context, name string, n uint64, i int) error {
	if err := await.Sleep(ctx, workTime); err != nil {
		return err
	}
	d.stops.at(AtReconcile, name)
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, dutyField, fmt.Sprint(d.process, " ", n, ".", i))
	return d.client.Patch(ctx, dutyObject(d.sites, name), client.RawPatch(types.MergePatchType, patch))
}
