package delivery

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Pages hold many small objects, or few large ones, in whatever form these come.
func TestPagesFitTheObjects(t *testing.T) {
	typed := func(bytes int) runtime.Object {
		obj := configMap("a", "b", "c")
		obj.Data = map[string]string{"x": strings.Repeat("x", bytes)}
		return obj
	}
	untyped := func(bytes int) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b", "uid": "c"},
			"data": strings.Repeat("x", bytes),
		}}
	}
	for _, c := range []struct {
		bytes       int
		least, most int64
	}{{10, mostPage, mostPage}, {4000, 900, 1100}, {1 << 20, leastPage, leastPage}} {
		for name, object := range map[string]func(int) runtime.Object{"typed": typed, "untyped": untyped} {
			s := New(Options{Slots: 8})
			inf := s.NewInformer(configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil).(*informer)
			if got := inf.source.pageSize(); got != firstPage {
				t.Errorf("%d objects in the first page", got)
			}
			page := &corev1.List{}
			for range 40 {
				page.Items = append(page.Items, runtime.RawExtension{Object: object(c.bytes)})
			}
			if _, _, err := inf.source.sift(page, &relist{List: inf.source.core.NewList(slot.Set{})}, slot.Set{}); err != nil {
				t.Fatal(err)
			}
			if got := inf.source.pageSize(); got < c.least || got > c.most {
				t.Errorf("%s objects of %d bytes: %d in a page, want %d to %d", name, c.bytes, got, c.least, c.most)
			}
		}
	}
}
