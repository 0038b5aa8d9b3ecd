package delivery

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/pending"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// Reads do not wait for what an informer's user leaves out. What only the API server can tell, they wait for.
func TestSelects(t *testing.T) {
	named := func(l ...labels.Set) *pending.Write {
		return &pending.Write{Name: types.NamespacedName{Namespace: "a", Name: "x"}, Labels: l}
	}
	for _, c := range []struct {
		label, field string
		write        *pending.Write
		want         bool
	}{
		{"", "", named(labels.Set{}), true},
		{"app=a", "", named(labels.Set{"app": "a"}), true},
		{"app=a", "", named(labels.Set{"app": "b"}), false},
		{"app=a", "", named(labels.Set{"app": "b"}, labels.Set{"app": "a"}), true}, // as it was by one of its writes
		{"app=a", "", named(), true},                                               // nobody knows
		{"app=a", "", named(labels.Set{}), false},
		{"", "metadata.name=x", named(), true},
		{"", "metadata.name=y", named(), false},
		{"", "metadata.name!=x", named(), false},
		{"", "metadata.name!=y", named(), true},
		{"", "metadata.namespace=b", named(), false},
		{"", "spec.nodeName=n", named(), true},
		{"", "spec.nodeName=n,metadata.name=y", named(), false},
		{"app in (", "", named(labels.Set{}), true},
	} {
		if got := selects(sharding.Selectors{Label: c.label, Field: c.field}, c.write); got != c.want {
			t.Errorf("label %q, field %q, labels %v: %v, want %v", c.label, c.field, c.write.Labels, got, c.want)
		}
	}
}
