package ctrlrt_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// A policy refuses updates of some objects, so that they cannot be labelled. Each is reconciled by one member, also one
// that is created later, and a member that joins later gets its share of them.
func TestObjectsThatCannotBeLabelled(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	meta := metav1.ObjectMeta{Name: "frozen-" + namespace}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"},
					Resources: []string{"configmaps"}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: "object.?data.value.orValue('') != 'frozen'"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, obj := range []client.Object{policy, binding} {
		require.NoError(t, c.Create(t.Context(), obj))
		t.Cleanup(func() { _ = c.Delete(t.Context(), obj) })
	}
	keys := map[types.NamespacedName]bool{}
	create := func(name, value string) {
		cm := configMap(namespace, name, value)
		require.NoError(t, c.Create(t.Context(), cm))
		keys[client.ObjectKeyFromObject(cm)] = true
	}
	probe := configMap(namespace, "probe", "frozen")
	require.NoError(t, c.Create(t.Context(), probe))
	keys[client.ObjectKeyFromObject(probe)] = true
	eventually(t, 30*time.Second, func() string {
		probe.Labels = map[string]string{"changed": "true"}
		if c.Update(t.Context(), probe, client.DryRunAll) == nil {
			return "the policy does not work yet"
		}
		return ""
	})
	for i := range 20 {
		create(fmt.Sprintf("free-%d", i), "1")
		create(fmt.Sprintf("frozen-%d", i), "frozen")
	}
	j := newJournal()
	reconciled := func() string {
		for key := range keys {
			if j.of(key).member == "" {
				return fmt.Sprintf("%s was not reconciled", key)
			}
		}
		return ""
	}
	a := startReplica(t, namespace, "a", j, replicaOptions{delivery: sharding.SlotLabel})
	b := startReplica(t, namespace, "b", j, replicaOptions{delivery: sharding.SlotLabel})
	eventually(t, time.Minute, settled(a, b))
	eventually(t, time.Minute, reconciled)
	create("frozen-late", "frozen")
	eventually(t, time.Minute, reconciled)
	third := startReplica(t, namespace, "c", j, replicaOptions{delivery: sharding.SlotLabel})
	eventually(t, time.Minute, settled(a, b, third))
	eventually(t, time.Minute, func() string {
		for key := range keys {
			if third.Rota().Owns(configMapKind, key) && j.of(key).member != "c" {
				return fmt.Sprintf("%s is c's and was last reconciled by %s", key, j.of(key).member)
			}
		}
		return ""
	})
	require.NoError(t, j.problem())
	eventually(t, time.Minute, func() string {
		var events eventsv1.EventList
		require.NoError(t, c.List(t.Context(), &events, client.InNamespace(namespace)))
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == "LabelsRefused" }) {
			return "no event says that labels are refused"
		}
		return ""
	})
}
