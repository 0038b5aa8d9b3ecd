package ctrlrt

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
)

type fixedCache struct {
	cache.Cache
	items []corev1.ConfigMap
	err   error
}

func (c fixedCache) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*corev1.ConfigMapList).Items = c.items
	return c.err
}

// The own slot of an object is being warmed (held, not open), its owner's slot is this member's: it is in both caches.
func TestListOfAKindInTwoCaches(t *testing.T) {
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"},
		rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	noError(t, err)
	kind, owner := corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(),
		corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	noError(t, shareOf(r).Shard(kind))
	shareOf(r).Own(kind, owner, true)
	k := newKinds()
	_ = k.shard(kind, "a")
	_, _ = k.own(kind, "b")
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Secret", Name: "s", Controller: ptr.To(true),
		}}}}
	main, children := fixedCache{items: []corev1.ConfigMap{cm}}, cache.Cache(fixedCache{items: []corev1.ConfigMap{cm}})
	rd := &reader{Reader: main, rota: r, kinds: k, scheme: scheme.Scheme}
	rd.children.Store(&children)
	var list corev1.ConfigMapList
	if err := rd.List(t.Context(), &list, Share); err != nil || len(list.Items) != 1 {
		t.Errorf("%d items, %v", len(list.Items), err)
	}
}
