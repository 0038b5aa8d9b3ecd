package sharding

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Labels that are written before they are asked for select nothing.
func TestLabelsInPreparation(t *testing.T) {
	s := New(Options{Mode: Filter, Label: true})
	owner, child := schema.GroupKind{Kind: "Site"}, schema.GroupKind{Kind: "ConfigMap"}
	s.Own(child, owner, true)
	sc := s.Scope(child, Role{Owners: map[schema.GroupKind]bool{owner: true}})
	var o Request
	sc.Narrow(&o, slot.SetOf(slot.Range{First: 0, Last: 3}))
	if o.LabelSelector != "" {
		t.Errorf("Filter with Label selects owned kinds by %q", o.LabelSelector)
	}
}

// The label of an object whose name the API server is to make is not known.
func TestStampOfAGeneratedName(t *testing.T) {
	s := New(Options{Mode: SlotLabel})
	kind := schema.GroupKind{Kind: "Site"}
	require.NoError(t, s.Shard(kind))
	before := s.Stamps(kind, &metav1.ObjectMeta{Namespace: "a", GenerateName: "x-"})
	after := s.Stamps(kind, &metav1.ObjectMeta{Namespace: "a", Name: "x-12345"})
	if len(before) > 0 {
		t.Errorf("stamped before its name is known: %v; with it: %v", before, after)
	}
}
