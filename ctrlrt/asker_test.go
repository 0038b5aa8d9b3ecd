package ctrlrt

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
)

// Who lists a sharded kind outside of sharded controllers is told once for each place.
func TestListsFromOutsideAreToldOncePerPlace(t *testing.T) {
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"}, rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(gvk, meta.RESTScopeNamespace)
	share, all := fixedCache{items: make([]corev1.ConfigMap, 3)}, fixedCache{items: make([]corev1.ConfigMap, 9)}
	k := newKinds()
	if err := k.shard(gvk.GroupKind(), "configmap"); err != nil {
		t.Fatal(err)
	}
	var told []string
	rd := &reader{
		Reader: share, live: &uncached{Reader: all, scheme: scheme.Scheme, mapper: mapper}, rota: r, kinds: k, scheme: scheme.Scheme,
		log: funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}),
	}
	list := func(ctx context.Context) int {
		var list corev1.ConfigMapList
		if err := rd.List(ctx, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	outside := t.Context()
	for range 3 {
		if n := list(outside); n != 9 {
			t.Errorf("%d objects from outside, want all 9", n)
		}
	}
	var other corev1.ConfigMapList
	if err := rd.List(outside, &other); err != nil || len(other.Items) != 9 {
		t.Errorf("%d objects from outside, error %v, want all 9", len(other.Items), err)
	}
	if len(told) != 2 || told[0] == told[1] {
		t.Errorf("told %d times, want once for each of two places: %s", len(told), told)
	}
	// The context of a sharded controller says so, to all that runs with it.
	inside := manager.RunnableFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if n := list(ctx); n != 3 {
			t.Errorf("%d objects in a sharded controller, want its share of 3", n)
		}
		return nil
	})
	if err := (asking{inside, &asker{controller: "configmap", owned: map[schema.GroupKind]bool{}}}).Start(outside); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 {
		t.Errorf("a sharded controller was told: %s", told)
	}
	if len(told) > 0 && !strings.Contains(told[0], "asker_test.go:") {
		t.Errorf("%q does not name the place", told[0])
	}
}
