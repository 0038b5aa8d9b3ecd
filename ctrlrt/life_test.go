package ctrlrt_test

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
)

func adminClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlplane.For(t).Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// R7, R13: a member whose Lease somebody deletes is out; it joins again as a new incarnation, and all the while no
// object is reconciled twice at once.
func TestExpelledMemberJoinsAgain(t *testing.T) {
	controlplane.Essential(t)
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := newJournal()
	var keys []types.NamespacedName
	for i := range 40 {
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, client.ObjectKeyFromObject(cm))
	}
	options := replicaOptions{busy: 40 * time.Millisecond}
	a := startReplica(t, namespace, "a", j, options)
	b := startReplica(t, namespace, "b", j, options)
	eventually(t, 30*time.Second, settled(a, b))
	stop := churn(t, c, keys)
	old, before := a.Rota().ID(), j.total()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, names.Lease("test", old)
	if err := c.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, func() string {
		if a.Rota().ID() == old {
			return "the member has not noticed that its Lease is gone"
		}
		return settled(a, b)()
	})
	if changes, n := stop(), j.total()-before; n < 60 {
		t.Errorf("%d reconciles and %d changes while slots moved: this says nothing", n, changes)
	}
	eventually(t, 10*time.Second, func() string {
		for _, key := range keys {
			cm := configMap(key.Namespace, key.Name, "")
			if err := c.Get(t.Context(), key, cm); err != nil {
				return err.Error()
			}
			if v := j.of(key); v.version != cm.ResourceVersion {
				return fmt.Sprintf("%s was last reconciled at version %q, want %s", key, v.version, cm.ResourceVersion)
			}
		}
		return ""
	})
	if err := j.problem(); err != nil {
		t.Error(err)
	}
}
