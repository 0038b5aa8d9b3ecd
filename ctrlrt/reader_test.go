package ctrlrt_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestReadersSeeTheTruth(t *testing.T) {
	t.Parallel()
	plane := controlplane.For(t)
	namespace := controlplane.Namespace(t)
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const objects = 40
	for i := range objects {
		cm := configMap(namespace, fmt.Sprintf("object-%d", i), fmt.Sprint(i%2))
		cm.Labels = map[string]string{"test": "reader"}
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	const field = "data.value"
	index := func(mgr *ctrlrt.Manager) {
		err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, func(obj client.Object) []string {
			return []string{obj.(*corev1.ConfigMap).Data["value"]}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	j := newJournal()
	a := startReplica(t, namespace, "a", j, replicaOptions{setup: index})
	b := startReplica(t, namespace, "b", j, replicaOptions{setup: index})
	eventually(t, 30*time.Second, settled(a, b))

	t.Run("List and indexes hold the share", func(t *testing.T) {
		total, odd := 0, 0
		for _, r := range []*replica{a, b} {
			var all, indexed corev1.ConfigMapList
			if err := r.GetClient().List(t.Context(), &all, client.InNamespace(namespace), ctrlrt.Share); err != nil {
				t.Fatal(err)
			}
			if err := r.GetClient().List(t.Context(), &indexed, client.InNamespace(namespace), client.MatchingFields{field: "1"},
				ctrlrt.Share); err != nil {
				t.Fatal(err)
			}
			for _, cm := range all.Items {
				if !r.Rota().Owns(configMapKind, client.ObjectKeyFromObject(&cm)) {
					t.Errorf("%s has %s in its cache, which it does not own", r.Rota().ID(), cm.Name)
				}
				if cm.Data != nil && cm.Data["value"] != "" {
					total++
				}
			}
			odd += len(indexed.Items)
		}
		if total != objects || odd != objects/2 {
			t.Errorf("the members' lists have %d objects and %d by index, want %d and %d", total, odd, objects, objects/2)
		}
	})
	t.Run("List from outside of sharded controllers is whole or refused", func(t *testing.T) {
		for _, r := range []client.Reader{a.GetClient(), b.GetCache()} {
			var all corev1.ConfigMapList
			if err := r.List(t.Context(), &all, client.InNamespace(namespace),
				client.MatchingLabels{"test": "reader"}); err != nil || len(all.Items) != objects {
				t.Errorf("%d objects, error %v, want all %d", len(all.Items), err, objects)
			}
			name := client.MatchingFields{"metadata.name": "object-7"}
			if err := r.List(t.Context(), &all, client.InNamespace(namespace), name); err != nil || len(all.Items) != 1 {
				t.Errorf("%d objects by name, error %v, want one", len(all.Items), err)
			}
			err := r.List(t.Context(), &all, client.InNamespace(namespace), client.MatchingFields{field: "1"})
			wantError(t, err, "ConfigMap", field, "reader_test.go", "KeepWhole", "Whole", "ctrlrt.Share")
			err = r.List(t.Context(), &all, client.InNamespace("kube-system"))
			wantError(t, err, "unknown namespace for the cache")
		}
	})
	t.Run("Get of a foreign object is answered by the API server", func(t *testing.T) {
		for i := range objects {
			for _, r := range []client.Reader{a.GetClient(), b.GetClient(), a.GetCache(), b.GetCache()} {
				if err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)},
					&corev1.ConfigMap{}); err != nil {
					t.Error(err)
				}
			}
		}
		err := a.GetClient().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "none"}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("Get of what does not exist: %v, want NotFound", err)
		}
		var meta metav1.PartialObjectMetadata
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		for i := range objects {
			if b.Rota().Owns(configMapKind, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}) {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := b.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)},
				&meta); err != nil {
				t.Error(err)
			}
			break
		}
	})
}

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
