package ctrlrt_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMembersShareObjects(t *testing.T) {
	t.Parallel()
	for _, kind := range []sharding.Mode{sharding.Filter, sharding.SlotLabel, sharding.ShardSelector} {
		t.Run(kind.String(), func(t *testing.T) { testMembersShareObjects(t, kind) })
	}
}

// testMembersShareObjects has objects that the cache's own selector leaves out among them: both selectors hold. While
// slots move all objects change, and their reconciles take a while: none of two members may overlap.
func testMembersShareObjects(t *testing.T, kind sharding.Mode) {
	if kind == sharding.Filter {
		controlplane.Essential(t)
	}
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	create := func(name, app string) types.NamespacedName {
		cm := configMap(namespace, name, "1")
		cm.Labels = map[string]string{"app": app}
		require.NoError(t, c.Create(t.Context(), cm))
		return client.ObjectKeyFromObject(cm)
	}
	var keys []types.NamespacedName
	for i := range 60 {
		keys = append(keys, create(fmt.Sprintf("object-%d", i), "mine"))
		create(fmt.Sprintf("other-%d", i), "other")
	}
	update := func(key types.NamespacedName, value string) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value))
		require.NoError(t, c.Patch(t.Context(), configMap(key.Namespace, key.Name, ""), patch))
	}
	options := replicaOptions{delivery: kind, selector: labels.SelectorFromSet(labels.Set{"app": "mine"}),
		busy: 40 * time.Millisecond}
	j := newJournal()
	current := func() string {
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
	}
	a := startReplica(t, namespace, "a", j, options)
	b := startReplica(t, namespace, "b", j, options)
	eventually(t, 30*time.Second, settled(a, b))
	eventually(t, 10*time.Second, current)
	if n := j.members(); len(n) != 2 {
		t.Errorf("objects by member: %v, want both", n)
	}

	changes := 0
	moving := func(move func()) {
		t.Helper()
		before, stop := j.total(), churn(t, c, keys)
		eventually(t, 20*time.Second, func() string {
			if j.total() < before+20 {
				return "the changes are not reconciled"
			}
			return ""
		})
		before = j.total()
		move()
		changes += stop()
		if n := j.total() - before; n < 5 {
			t.Errorf("%d reconciles while slots moved: this says nothing", n)
		}
	}
	var d *replica
	moving(func() {
		d = startReplica(t, namespace, "d", j, options)
		eventually(t, 30*time.Second, settled(a, b, d))
	})
	eventually(t, 10*time.Second, j.keptTwice)
	for _, key := range keys {
		update(key, "2")
	}
	eventually(t, 10*time.Second, current)
	if n := j.members(); len(n) != 3 {
		t.Errorf("objects by member: %v, want three", n)
	}

	moving(func() {
		a.leave(t)
		eventually(t, 10*time.Second, settled(b, d))
	})
	for _, key := range keys {
		update(key, "3")
	}
	eventually(t, 10*time.Second, current)
	require.NoError(t, j.problem())
	for key := range j.last {
		if !slices.Contains(keys, key) {
			t.Errorf("%s was reconciled, but the cache's own selector leaves it out", key)
		}
	}
	for _, m := range []*replica{b, d} {
		traffic := m.Rota().Status().Traffic[configMapKind]
		if traffic.Received == 0 || traffic.Foreign > 0 {
			t.Errorf("%s received %d objects, %d of them not asked for; want some, and none", m.Rota().ID(), traffic.Received,
				traffic.Foreign)
		}
		if all := uint64(3*len(keys) + changes); kind != sharding.Filter && traffic.Received >= all {
			t.Errorf("%s received %d objects, which is as good as all events of all objects, %d", m.Rota().ID(),
				traffic.Received, all)
		}
	}
}
