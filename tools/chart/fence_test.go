package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"bytes"

	"github.com/rota-dev/rota/fence"
)

// TestFence: the fence is the one that `rota fence` prints, but for the chart's labels.
func TestFence(t *testing.T) {
	chart := load(t)
	groups := func(all ...schema.GroupVersionResource) (out []schema.GroupResource) {
		for _, r := range all {
			out = append(out, r.GroupResource())
		}
		return out
	}
	kinds := func(all ...schema.GroupVersionResource) []any {
		out := []any{}
		for _, r := range all {
			out = append(out, values{"group": r.Group, "resource": r.Resource})
		}
		return out
	}
	for name, c := range map[string]struct {
		release release
		sharded []schema.GroupVersionResource
		owned   []schema.GroupVersionResource
		fence   fence.Options
	}{
		"website": {
			release{name: "website-operator", namespace: "operators"}, []schema.GroupVersionResource{websites}, owned,
			fence.Options{
				Rota:           types.NamespacedName{Namespace: "operators", Name: "website"},
				ServiceAccount: types.NamespacedName{Namespace: "operators", Name: "website-operator"},
			},
		},
		"no configmaps": {
			release{name: "shop", namespace: "web"}, []schema.GroupVersionResource{websites}, owned[:2], fence.Options{
				Rota:           types.NamespacedName{Namespace: "web", Name: "website"},
				ServiceAccount: types.NamespacedName{Namespace: "web", Name: "shop-website"},
			},
		},
		"leases, and a kind twice": {
			release{name: "shop", namespace: "web"},
			[]schema.GroupVersionResource{websites, {Group: "coordination.k8s.io", Resource: "leases"}},
			[]schema.GroupVersionResource{websites}, fence.Options{
				Rota:           types.NamespacedName{Namespace: "web", Name: "website"},
				ServiceAccount: types.NamespacedName{Namespace: "web", Name: "shop-website"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.release.values = set(nil, "rota.fence.enabled", true)
			c.release.values = set(c.release.values, "rota.kinds.sharded", kinds(c.sharded...))
			c.release.values = set(c.release.values, "rota.kinds.owned", kinds(c.owned...))
			manifests, _, err := c.release.text(chart)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
				for _, obj := range only(parse(t, manifests), kind) {
					labels := obj.GetLabels()
					delete(labels, "app.kubernetes.io/name")
					delete(labels, "app.kubernetes.io/instance")
					obj.SetLabels(labels)
					if len(labels) == 0 {
						unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
					}
					got[kind+" "+obj.GetName()] = obj.Object
				}
			}
			c.fence.Resources = unique(groups(append(c.sharded, c.owned...)...))
			text, err := fence.Manifest(c.fence)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			for doc := range bytes.SplitSeq(text, []byte("---\n")) {
				obj := &unstructured.Unstructured{}
				if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
					t.Fatal(err)
				}
				want[obj.GetKind()+" "+obj.GetName()] = obj.Object
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-rota fence +chart:\n%s", diff)
			}
		})
	}
}

func unique(all []schema.GroupResource) (out []schema.GroupResource) {
	seen := map[schema.GroupResource]bool{}
	for _, r := range all {
		if !seen[r] {
			out = append(out, r)
		}
		seen[r] = true
	}
	return out
}
