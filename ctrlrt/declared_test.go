package ctrlrt_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/require"
)

// electing returns a manager with leader election of which there is no API server. It shards ConfigMaps.
func electing(t *testing.T, name string) *ctrlrt.Manager {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret", "Service"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mgr, _ := offline(t, name, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "leader", LeaderElectionNamespace: "operators",
		Controller:     managerOptions().Controller,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("configs").Complete(nothing))
	return mgr
}

// A controller that needs the leader starts only where it is elected. If it needs all objects of a kind of which the
// cache holds a share, it must be refused on every replica: a rollout would pass those that wait, and each would end at
// its takeover.
func TestAControllerThatWaitsForTheLeadIsRefusedAtTheStart(t *testing.T) {
	enqueue := &handler.EnqueueRequestForObject{}
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for name, step := range map[string]func(*ctrlrt.Manager, *ctrl.Builder) *ctrl.Builder{
		"For": func(_ *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder { return b.For(&corev1.ConfigMap{}) },
		"For of metadata": func(_ *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder {
			return b.For(&corev1.ConfigMap{}, builder.OnlyMetadata)
		},
		"For of unstructured objects": func(_ *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder { return b.For(untyped) },
		"Owns": func(_ *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder {
			return b.For(&corev1.Service{}).Owns(&corev1.ConfigMap{})
		},
		"Watches": func(_ *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder {
			return b.For(&corev1.Service{}).Watches(&corev1.ConfigMap{}, enqueue)
		},
		"WatchesRawSource": func(mgr *ctrlrt.Manager, b *ctrl.Builder) *ctrl.Builder {
			return b.For(&corev1.Service{}).WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.ConfigMap{},
				&handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := electing(t, "elected-of-sharded")
			require.NoError(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Named("innocent").Complete(nothing))
			require.NoError(t, step(mgr, ctrl.NewControllerManagedBy(mgr).Named("all-configs")).Complete(nothing))
			err := startOnce(t, mgr)
			require.ErrorSays(t, err, `kind ConfigMap is sharded by controller "configs"`, `controller "all-configs" needs all`,
				"ctrlrt.NewDutyControllerManagedBy", "ctrlrt.NewControllerManagedBy", "Whole", "KeepWhole")
			if strings.Contains(err.Error(), "innocent") {
				t.Errorf("error %q blames another controller", err)
			}
		})
	}
}

// The ways out that the refusal names.
func TestWaysToAllObjectsOfAShardedKind(t *testing.T) {
	for name, build := range map[string]func(*ctrlrt.Manager) error{
		"a duty": func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("all-configs").Complete(nothing)
		},
		"sharded, too": func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("all-configs").Complete(nothing)
		},
		"Whole": func(mgr *ctrlrt.Manager) error {
			var outer manager.Manager
			outer, err := mgr.Whole()
			if err != nil {
				return err
			}
			return ctrl.NewControllerManagedBy(outer).For(&corev1.ConfigMap{}).Named("all-configs").Complete(nothing)
		},
		"KeepWhole": func(mgr *ctrlrt.Manager) error {
			if err := mgr.KeepWhole(&corev1.ConfigMap{}); err != nil {
				return err
			}
			return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("all-configs").Complete(nothing)
		},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := electing(t, "elected-of-whole")
			require.NoError(t, build(mgr))
			require.NoError(t, startOnce(t, mgr))
		})
	}
}

// A duty has the name of its kind by default, as a sharded controller of that kind has.
func TestADutyNamedAsAShardedController(t *testing.T) {
	mgr := electing(t, "two-of-a-name")
	err := ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("configs").Complete(nothing)
	require.ErrorSays(t, err, "duty controller configs", "a sharded controller of that name", "Named")
	require.NoError(t, ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("all").Complete(nothing))
}
