package ctrlrt

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/require"
)

func TestBoundsAreThoseOfTheCache(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	configMap, node := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Node")
	mapper.Add(configMap, meta.RESTScopeNamespace)
	mapper.Add(node, meta.RESTScopeRoot)
	label := func(value string) labels.Selector { return labels.SelectorFromSet(labels.Set{"l": value}) }
	field := func(value string) fields.Selector { return fields.OneTermEqualSelector("f", value) }
	for _, test := range []struct {
		name          string
		options       cache.Options
		namespace     string
		cluster       bool
		label, field  string
		unknown       bool
		namespacesLen int
	}{
		{name: "none"},
		{name: "defaults", options: cache.Options{DefaultLabelSelector: label("d"), DefaultFieldSelector: field("d")},
			label: "l=d", field: "f=d"},
		{
			name: "by object", options: cache.Options{
				DefaultLabelSelector: label("d"), DefaultFieldSelector: field("d"),
				ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: label("o")},
					&corev1.Secret{}: {Label: label("x")}},
			}, label: "l=o", field: "f=d",
		},
		{
			name: "namespace", namespace: "a", namespacesLen: 2, options: cache.Options{
				DefaultLabelSelector: label("d"), DefaultFieldSelector: field("d"),
				DefaultNamespaces: map[string]cache.Config{"a": {LabelSelector: label("n")}, "b": {}},
			}, label: "l=n", field: "f=d",
		},
		{
			name: "another namespace", namespace: "c", unknown: true, namespacesLen: 2,
			options: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}, "b": {}}},
		},
		{
			name: "namespace before object", namespace: "a", namespacesLen: 1, options: cache.Options{
				DefaultNamespaces: map[string]cache.Config{"a": {LabelSelector: label("n"), FieldSelector: field("n")}},
				ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: label("o")}},
			}, label: "l=n", field: "f=n",
		},
		{
			name: "all other namespaces", namespace: "c", namespacesLen: 2,
			options: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}, "": {LabelSelector: label("rest")}}},
			label:   "l=rest", field: "metadata.namespace!=a",
		},
		{
			name: "all namespaces of an object", namespace: "c", options: cache.Options{
				DefaultNamespaces: map[string]cache.Config{"a": {}},
				ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{}}},
			},
		},
		{name: "no namespace", cluster: true, options: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}},
			DefaultLabelSelector: label("d")}, label: "l=d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			gvk := configMap
			if test.cluster {
				gvk = node
			}
			b, err := (&uncached{scheme: scheme.Scheme, mapper: mapper, options: test.options}).of(gvk)
			require.NoError(t, err)
			config, err := b.in(test.namespace, "get", "x")
			if (err != nil) != test.unknown || len(b.namespaces) != test.namespacesLen {
				t.Fatalf("error %v, namespaces %v; want unknown %t, %d namespaces", err, b.namespaces, test.unknown,
					test.namespacesLen)
			}
			var gotLabel, gotField string
			if config.LabelSelector != nil {
				gotLabel = config.LabelSelector.String()
			}
			if config.FieldSelector != nil {
				gotField = config.FieldSelector.String()
			}
			if gotLabel != test.label || gotField != test.field {
				t.Errorf("labels %q, fields %q; want %q, %q", gotLabel, gotField, test.label, test.field)
			}
		})
	}
}
