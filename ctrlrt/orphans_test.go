package ctrlrt_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// A controller makes objects of a kind that it Owns, also without a controlling owner, and lists all of them by a
// label. The list leaves out those without an owner. Both places are logged once.
func TestObjectsWithoutAnOwnerAreTold(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	about := metav1.ObjectMeta{Namespace: namespace, Name: "parent"}
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: about}))
	var mu sync.Mutex
	listed := map[string]int{} // by the annotation of the parent
	h := &heard{}
	startReplica(t, namespace, "a", newJournal(), replicaOptions{logger: funcr.New(h.write, funcr.Options{}),
		setup: func(mgr *ctrlrt.Manager) {
			mc := mgr.GetClient()
			err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ServiceAccount{}).Complete(
				reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					var parent corev1.Secret
					if err := mc.Get(ctx, req.NamespacedName, &parent); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					child := func(name string) *corev1.ServiceAccount {
						return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
							Labels: map[string]string{"of": "parent"}}}
					}
					owned := child("owned")
					if err := controllerutil.SetControllerReference(&parent, owned, mgr.GetScheme()); err != nil {
						return reconcile.Result{}, err
					}
					orphan := child("orphan")
					for _, made := range []*corev1.ServiceAccount{owned, orphan} {
						if err := mc.Create(ctx, made); client.IgnoreAlreadyExists(err) != nil {
							return reconcile.Result{}, err
						}
					}
					applied := applycorev1.ServiceAccount("applied", namespace).WithLabels(orphan.Labels)
					if err := mc.Apply(ctx, applied, client.FieldOwner("test")); err != nil {
						return reconcile.Result{}, err
					}
					var list corev1.ServiceAccountList
					if err := mc.List(ctx, &list, client.MatchingLabels{"of": "parent"}); err != nil {
						return reconcile.Result{}, err
					}
					// The next reconcile makes them again.
					for _, made := range []*corev1.ServiceAccount{orphan, child("applied")} {
						if err := mc.Delete(ctx, made); err != nil {
							return reconcile.Result{}, err
						}
					}
					mu.Lock()
					defer mu.Unlock()
					listed[parent.Annotations["round"]] = len(list.Items)
					return reconcile.Result{}, nil
				}))
			require.NoError(t, err)
		}})
	for _, round := range []string{"1", "2"} {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"round":%q}}}`, round))
		require.NoError(t, c.Patch(t.Context(), &corev1.Secret{ObjectMeta: about}, patch))
		eventually(t, 30*time.Second, func() string {
			mu.Lock()
			defer mu.Unlock()
			if n, done := listed[round]; !done || n > 1 {
				return fmt.Sprintf("round %s: %d objects listed (%t), want none but the owned one", round, n, done)
			}
			return ""
		})
	}
	for _, words := range [][]string{
		{"leaves out", "ServiceAccount", "secret", "orphans_test.go:", "ctrlrt.Live", "KeepWhole"},
		{"created or applied an object", "ServiceAccount", "secret", "orphans_test.go:", `"name"="orphan"`},
		{"created or applied an object", "ServiceAccount", "secret", "orphans_test.go:", `"name"="applied"`},
	} {
		if n := h.count(words...); n != 1 {
			t.Errorf("told %d times of %q, want once, in: %q", n, words, h.lines)
		}
	}
	if n := h.count("created or applied an object"); n != 2 {
		t.Errorf("told of %d objects without an owner, want two, in: %q", n, h.lines)
	}
}
