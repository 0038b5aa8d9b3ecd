package neighbor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

// EnvOperator is the environment variable that carries a replica's configuration.
const EnvOperator = "ROTA_NEIGHBOR_OPERATOR"

const (
	rotaNamespace, operatorName      = "neighbor", "neighbor"
	quietNamespace, floodNamespace   = "quiet", "flood"
	wantedAnnotation, doneAnnotation = "example.com/wanted", "example.com/done"
)

// Form is how the operator runs.
type Form string

// Leader is controller-runtime's leader election. Duties has each controller be a duty.
const (
	Leader Form = "leader election"
	Duties Form = "duties"
)

type operatorConfig struct {
	Kubeconfig string
	Form       Form
	Effort     int
}

// OperatorMain is a replica. It returns the exit status. It ends when its standard input does.
func OperatorMain() int {
	var c operatorConfig
	process.Answer(3, answer)
	return process.Main(EnvOperator, "the benchmark", &c, c.run, func(o *zap.Options) { o.Development = false })
}

// effort is how many bytes a reconcile of the flooded controller hashes, times Options.Effort: some 10 ms of a core.
const effort = 4 << 20

func (c *operatorConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // as controller-runtime's config.GetConfig
	o := ctrl.Options{}
	if c.Form == Leader {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, operatorName+"-leader", rotaNamespace
		o.LeaderElectionReleaseOnCancel = true
	}
	mgr, _, err := stage.NewManager(cfg, rota.Options{Name: operatorName, Namespace: rotaNamespace}, o)
	if err != nil {
		return err
	}
	copies := &copier{mgr.GetClient(), c.Effort}
	if err := c.add(mgr, "quiet", &corev1.Secret{}, quietNamespace, reconcile.Func(copies.secret)); err != nil {
		return err
	}
	if err := c.add(mgr, "flooded", &corev1.ConfigMap{}, floodNamespace, reconcile.Func(copies.configMap)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// controllerBuilder has the methods that both builders share.
type controllerBuilder[B any] interface {
	Named(string) B
	For(client.Object, ...builder.ForOption) B
	WithOptions(controller.Options) B
	Complete(reconcile.Reconciler) error
}

// add adds a controller for one namespace.
func (c *operatorConfig) add(mgr manager.Manager, name string, obj client.Object, namespace string,
	r reconcile.Reconciler,
) error {
	if c.Form == Duties {
		return build(ctrlrt.NewDutyControllerManagedBy(mgr), name, obj, namespace, r)
	}
	return build(ctrl.NewControllerManagedBy(mgr), name, obj, namespace, r)
}

func build[B controllerBuilder[B]](
	b B, name string, obj client.Object, namespace string, r reconcile.Reconciler,
) error {
	mine := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == namespace })
	return b.Named(name).For(obj, builder.WithPredicates(mine)).
		WithOptions(controller.Options{MaxConcurrentReconciles: stage.Concurrency}).Complete(r)
}

// copier writes to each object what is wanted of it.
type copier struct {
	client.Client
	effort int
}

func (c *copier) secret(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return c.reconcile(ctx, req, &corev1.Secret{})
}

func (c *copier) configMap(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for range c.effort {
		if sha256.Sum256(make([]byte, effort)) == [sha256.Size]byte{} {
			return reconcile.Result{}, errors.New("there is no such sum") // so that it is computed
		}
	}
	return c.reconcile(ctx, req, &corev1.ConfigMap{})
}

func (c *copier) reconcile(ctx context.Context, req reconcile.Request, obj client.Object) (reconcile.Result, error) {
	if err := c.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	want := obj.GetAnnotations()[wantedAnnotation]
	if obj.GetAnnotations()[doneAnnotation] == want {
		return reconcile.Result{}, nil
	}
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, doneAnnotation, want))
	return reconcile.Result{}, c.Patch(ctx, obj, patch)
}

// settleTime is how long the replicas have before a measurement, once their controllers work.
const settleTime = 3 * time.Second
