package chart

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestKeeper: what all fences of a cluster share is left out of a release if somebody else has installed it, since Helm
// would refuse to take it over. The release that has it keeps it.
func TestKeeper(t *testing.T) {
	w, chart := newWorld(t), load(t)
	r := release{name: "shop", namespace: w.namespace, values: set(nil, "rota.fence.enabled", true)}
	keepers := func() (out []*unstructured.Unstructured) {
		t.Helper()
		manifests, _, err := r.text(chart)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range parse(t, manifests) {
			if obj.GetName() == "rota-fence-keeper" {
				out = append(out, obj)
			}
		}
		return out
	}
	keeper := keepers()
	if len(keeper) != 2 {
		t.Fatalf("%d objects without a cluster, want policy and binding", len(keeper))
	}
	r.cluster = w.plane.Config()
	owner := func(name, namespace string) {
		t.Helper()
		for _, obj := range keeper {
			about := obj.GetAnnotations()
			delete(about, "meta.helm.sh/release-name")
			delete(about, "meta.helm.sh/release-namespace")
			if name != "" {
				about["meta.helm.sh/release-name"], about["meta.helm.sh/release-namespace"] = name, namespace
			}
			obj.SetAnnotations(about)
		}
		w.apply(t.Context(), keeper)
	}
	for _, c := range []struct {
		name, namespace string
		want            int
	}{{"", "", 0}, {"other", w.namespace, 0}, {"shop", "elsewhere", 0}, {"shop", w.namespace, 2}} {
		owner(c.name, c.namespace)
		if got := len(keepers()); got != c.want {
			t.Errorf("the keeper is of release %s/%s: %d objects, want %d", c.namespace, c.name, got, c.want)
		}
	}
	r.values = set(r.values, "rota.fence.keeper", false)
	if got := len(keepers()); got > 0 {
		t.Errorf("%d objects, although the values say that another tool installs them", got)
	}
}
