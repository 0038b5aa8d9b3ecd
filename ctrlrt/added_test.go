package ctrlrt_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

// Reconcilers of every member read from a cache that was added to the manager, though it does not say that it needs no
// leader.
func TestAddedCachesRunOnEveryMember(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	var caches []cache.Cache
	o := replicaOptions{leaderElection: true, setup: func(mgr *ctrlrt.Manager) {
		added, err := cache.New(mgr.GetConfig(), cache.Options{
			Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {}},
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := mgr.Add(added); err != nil {
			t.Fatal(err)
		}
		caches = append(caches, added)
	}}
	j := newJournal()
	a := startReplica(t, namespace, "a", j, o)
	b := startReplica(t, namespace, "b", j, o)
	eventually(t, 30*time.Second, settled(a, b))
	for n, added := range caches {
		if err := added.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "s"}, &corev1.Secret{}); err != nil {
			t.Errorf("%s cannot read from the cache that was added: %v", []string{"a", "b"}[n], err)
		}
	}
}
