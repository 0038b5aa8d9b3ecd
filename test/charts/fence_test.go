package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/test/require"
)

// TestFence: the fence is the one that `rota fence` prints, but for the chart's labels.
func TestFence(t *testing.T) {
	for name, resources := range map[string][]schema.GroupResource{
		"fence":       append([]schema.GroupResource{websites.GroupResource()}, groups(owned)...),
		"fence-kinds": {websites.GroupResource(), {Group: "coordination.k8s.io", Resource: "leases"}},
	} {
		got := map[string]any{}
		for _, obj := range rendered(t, name) {
			labels := obj.GetLabels()
			delete(labels, "app.kubernetes.io/name")
			delete(labels, "app.kubernetes.io/instance")
			obj.SetLabels(labels)
			if len(labels) == 0 {
				unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
			}
			got[obj.GetKind()+" "+obj.GetName()] = obj.Object
		}
		text, err := fence.Manifest(fence.Options{
			Rota:           types.NamespacedName{Namespace: "operators", Name: "website"},
			ServiceAccount: types.NamespacedName{Namespace: "operators", Name: "website-operator"},
			Resources:      resources,
		})
		require.NoError(t, err)
		for _, want := range parse(t, text) {
			if want.GetName() == "rota-fence-keeper" && name == "fence-kinds" { // fence.keeper is false
				continue
			}
			if diff := cmp.Diff(want.Object, got[want.GetKind()+" "+want.GetName()]); diff != "" {
				t.Errorf("%s: -rota fence +chart:\n%s", name, diff)
			}
		}
	}
}

func groups(all []schema.GroupVersionResource) (out []schema.GroupResource) {
	for _, r := range all {
		out = append(out, r.GroupResource())
	}
	return out
}
