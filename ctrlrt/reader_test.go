package ctrlrt_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
)

// What the cache's own selector leaves out is not found, and what it holds is transformed, whoever owns the slot.
func TestSelectorsAndTransformsHoldForAllSlots(t *testing.T) {
	t.Parallel()
	const objects = 20
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		for _, app := range []string{"mine", "other"} {
			cm := configMap(namespace, fmt.Sprintf("%s-%d", app, i), "1")
			cm.Labels = map[string]string{"app": app}
			if err := c.Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := replicaOptions{selector: labels.SelectorFromSet(labels.Set{"app": "mine"}),
		transform: func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				cm.Data = map[string]string{"value": "transformed"}
			}
			return obj, nil
		}}
	j := newJournal()
	a, b := startReplica(t, namespace, "a", j, o), startReplica(t, namespace, "b", j, o)
	eventually(t, 30*time.Second, settled(a, b))
	for i := range objects {
		var cm corev1.ConfigMap
		if err := a.GetClient().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("other-%d", i)},
			&cm); !apierrors.IsNotFound(err) {
			t.Errorf("Get of an object that the cache's selector leaves out: %q, %v; want NotFound", cm.Name, err)
		}
		if err := a.GetClient().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("mine-%d", i)},
			&cm); err != nil || cm.Data["value"] != "transformed" {
			t.Errorf("data %v, error %v, want it transformed", cm.Data, err)
		}
	}
	var list corev1.ConfigMapList
	if err := b.GetClient().List(t.Context(), &list); err != nil || len(list.Items) != objects {
		t.Errorf("List from outside: %d objects, error %v, want %d", len(list.Items), err, objects)
	}
	for _, cm := range list.Items {
		if cm.Data["value"] != "transformed" {
			t.Errorf("%s in a list was not transformed", cm.Name)
		}
	}
}
