package ctrlrt_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/controlplane"
)

func TestReadersSeeTheTruth(t *testing.T) {
	plane := controlplane.For(t)
	namespace := controlplane.Namespace(t)
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const objects = 40
	for i := range objects {
		if err := c.Create(t.Context(), configMap(namespace, fmt.Sprintf("object-%d", i), fmt.Sprint(i%2))); err != nil {
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
			if err := r.GetClient().List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
			if err := r.GetClient().List(t.Context(), &indexed, client.InNamespace(namespace), client.MatchingFields{field: "1"}); err != nil {
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
	t.Run("Get of a foreign object is answered by the API server", func(t *testing.T) {
		for i := range objects {
			for _, r := range []client.Reader{a.GetClient(), b.GetClient(), a.GetCache(), b.GetCache()} {
				if err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}, &corev1.ConfigMap{}); err != nil {
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
			if err := b.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}, &meta); err != nil {
				t.Error(err)
			}
			break
		}
	})
}
