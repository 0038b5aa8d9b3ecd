package ctrlrt_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/controlplane"
)

func TestMembersShareObjects(t *testing.T) {
	plane := controlplane.For(t)
	namespace := controlplane.Namespace(t)
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []types.NamespacedName
	for i := range 60 {
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), "1")
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, client.ObjectKeyFromObject(cm))
	}
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
	a := startReplica(t, namespace, "a", j, replicaOptions{})
	b := startReplica(t, namespace, "b", j, replicaOptions{})
	eventually(t, 30*time.Second, settled(a, b))
	eventually(t, 10*time.Second, current)
	if n := j.members(); len(n) != 2 {
		t.Errorf("objects by member: %v, want both", n)
	}

	d := startReplica(t, namespace, "d", j, replicaOptions{})
	eventually(t, 30*time.Second, settled(a, b, d))
	for _, key := range keys {
		if err := c.Update(t.Context(), configMap(key.Namespace, key.Name, "2")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, current)
	if n := j.members(); len(n) != 3 {
		t.Errorf("objects by member: %v, want three", n)
	}

	a.leave(t)
	eventually(t, 10*time.Second, settled(b, d))
	for _, key := range keys {
		if err := c.Update(t.Context(), configMap(key.Namespace, key.Name, "3")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, current)
	if j.err != nil {
		t.Error(j.err)
	}
}
