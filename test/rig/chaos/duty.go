package chaos

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
	"github.com/rota-dev/rota/test/rig/oracle"
)

const (
	// functionDuty is a function, controllerDuty a controller that is not sharded. Each writes to the ConfigMap of its
	// name, in the namespace of the Websites.
	functionDuty, controllerDuty = "duty-function", "duty-controller"
	// dutyPeriod is the time between two writes of a duty.
	dutyPeriod = 200 * time.Millisecond
	// dutyNamespace is in the journal what tells a run of a duty from a reconcile.
	dutyNamespace = "duty"
	// dutyField is the field of the ConfigMap that tells who wrote it.
	dutyField = "by"
)

var dutyNames = []string{functionDuty, controllerDuty}

func dutyObject(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: sitesNamespace, Name: name}}
}

// isDutyWrite returns a function that matches the writes for a duty.
func isDutyWrite(name string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/"+name)
	}
}

// duties are those of a member. They do not ask for the version that they overwrite, so a write that comes late does
// harm. Each run is journaled. A write that fails is not repeated: the next one comes soon.
type duties struct {
	client  client.Client
	journal *journal.Writer
	stops   *stops
	process string
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
	d.stops.at(atReconcile, name)
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, dutyField, fmt.Sprint(d.process, " ", n, ".", i))
	return d.client.Patch(ctx, dutyObject(name), client.RawPatch(types.MergePatchType, patch))
}

// dutyWriter returns the Pod that wrote for a duty last, and the version that it made.
func (c *cluster) dutyWriter(ctx context.Context, name string) (pod, version string, err error) {
	obj := dutyObject(name)
	err = c.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	return podOfProcess(oracle.Writer(obj.Data[dutyField])), obj.ResourceVersion, err
}

// done waits until every duty is done, for limit at most.
func (s *fleet) done(ctx context.Context, limit time.Duration) error {
	before := map[string]string{}
	_ = await.Until(ctx, pollPeriod, limit, func() string { // in vain perhaps: the oracle tells
		for _, name := range dutyNames {
			_, version, err := s.cluster.dutyWriter(ctx, name)
			if err != nil {
				return err.Error()
			}
			if before[name] == "" {
				before[name] = version
			}
			if before[name] == version {
				return "nobody does duty " + name
			}
		}
		return ""
	})
	return ctx.Err()
}

// dutyVictim returns a duty, and the member that has it.
func (r *run) dutyVictim(ctx context.Context) (string, *member, error) {
	name := dutyNames[r.random.IntN(len(dutyNames))]
	t, err := r.table(ctx)
	if err != nil {
		return name, nil, err
	}
	if t == nil {
		return name, nil, errors.New("there is no table")
	}
	s, ok := t.DutySlot(name)
	if !ok {
		return name, nil, fmt.Errorf("the table does not have duty %s", name)
	}
	m, err := r.owner(t, s)
	if err != nil {
		err = fmt.Errorf("duty %s: %w", name, err)
	}
	return name, m, err
}

// dutyTaken waits until another Pod has written for a duty.
func (r *run) dutyTaken(ctx context.Context, name, pod string) error {
	return await.Until(ctx, pollPeriod, restLimit, func() string {
		writer, _, err := r.cluster.dutyWriter(ctx, name)
		if err != nil {
			return err.Error()
		}
		if writer == pod {
			return fmt.Sprintf("nobody but %s has done duty %s", pod, name)
		}
		return ""
	})
}
