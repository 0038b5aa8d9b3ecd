package rotatest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/require"
)

// one and other are the same objects of two runs.
const (
	one = `
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: a, uid: 11111111-1111-1111-1111-111111111111,
   resourceVersion: "5", generation: 3, creationTimestamp: "2026-01-01T00:00:00Z", finalizers: [kept, held],
   labels: {rota.dev/hash-ConfigMap-1: "7"}}, data: {child: a-bcdfg, at: "2026-01-01T00:00:00+02:00"},
   status: {observedGeneration: 3, conditions: [{type: A, observedGeneration: 2}, {type: B}]}}
- {apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: a-bcdfg, generateName: a-,
   uid: 22222222-2222-2222-2222-222222222222, ownerReferences: [{kind: ConfigMap, name: a,
   uid: 11111111-1111-1111-1111-111111111111}]}, data: {is: one}}
- {apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: a-zzzzz, generateName: a-}, data: {is: two}}
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1],
   ports: [{port: 80, nodePort: 30001}]}}`
	other = `
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: a, uid: aaaaaaaa-1111-1111-1111-111111111111,
   resourceVersion: "9", generation: 5, creationTimestamp: "2026-01-01T00:00:09Z", finalizers: [held, kept]},
   data: {child: a-xxxxx, at: "2026-01-01T00:00:09.5Z"},
   status: {observedGeneration: 5, conditions: [{type: B}, {type: A, observedGeneration: 4}]}}
- {apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: a-bbbbb, generateName: a-}, data: {is: two}}
- {apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: a-xxxxx, generateName: a-,
   uid: bbbbbbbb-2222-2222-2222-222222222222, ownerReferences: [{kind: ConfigMap, name: a,
   uid: aaaaaaaa-1111-1111-1111-111111111111}]}, data: {is: one}}
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}, spec: {clusterIP: 10.0.0.7, clusterIPs: [10.0.0.7],
   ports: [{port: 80, nodePort: 30009}]}}`
)

func parse(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	var list []map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &list))
	for _, fields := range list {
		data, err := yaml.Marshal(fields)
		require.NoError(t, err)
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		require.NoError(t, obj.UnmarshalJSON(data))
		all = append(all, obj)
	}
	return all
}

func TestNormalize(t *testing.T) {
	a, b := normalize(parse(t, one)), normalize(parse(t, other))
	require.Equal(t, "the same objects of two runs differ", a.objects, b.objects)
	names := slices.Sorted(maps.Keys(a.objects))
	want := []string{"ConfigMap shop/a", "Secret shop/a-<generated 1>", "Secret shop/a-<generated 2>", "Service shop/s"}
	require.Equal(t, "names", want, names)
	child, _, _ := unstructured.NestedString(a.objects["ConfigMap shop/a"], "data", "child")
	owner, _, _ := unstructured.NestedSlice(a.objects["Secret shop/a-<generated 1>"], "metadata", "ownerReferences")
	if child != "a-<generated 1>" || owner[0].(map[string]any)["uid"] != "<uid of ConfigMap shop/a>" {
		t.Errorf("child %q, owner %v", child, owner)
	}
}

// What is part of the state stays.
func TestDifference(t *testing.T) {
	got := parse(t, one)
	for _, change := range []struct {
		value any
		path  []string
	}{
		{"other", []string{"data", "child"}}, {int64(1), []string{"status", "observedGeneration"}},
		{"b", []string{"metadata", "labels", "a.example.com/x"}},
	} {
		require.NoError(t, unstructured.SetNestedField(got[0].Object, change.value, change.path...))
	}
	diff := difference(normalize(parse(t, one)).objects["ConfigMap shop/a"], normalize(got).objects["ConfigMap shop/a"])
	lines := map[string]bool{}
	for line := range strings.SplitSeq(diff, "\n") {
		lines[line] = true
	}
	for _, want := range []string{
		`data.child: -"a-<generated 1>" +"other"`, `metadata.labels: -nothing +{"a.example.com/x":"b"}`,
		`status.observedGeneration: -"<the latest>" +"<an older one>"`,
	} {
		if !lines[want] {
			t.Errorf("no line %s in\n%s", want, diff)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines, want 3:\n%s", len(lines), diff)
	}
}

// A list in another order is named once.
func TestDifferentOrder(t *testing.T) {
	list := func(all ...any) map[string]any { return map[string]any{"spec": map[string]any{"ports": all}} }
	a, b := map[string]any{"name": "amqp"}, map[string]any{"name": "http"}
	if diff := difference(list(a, b), list(b, a)); diff != "spec.ports: the same elements in another order" {
		t.Error(diff)
	}
	if diff := difference(list(a, b), list(b)); !strings.Contains(diff, `-{"name":"amqp"} +nothing`) {
		t.Error(diff)
	}
}

// Two groups may have a kind of one name.
func TestKindsOfOneName(t *testing.T) {
	const services = `
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}}
- {apiVersion: serving.example.com/v1, kind: Service, metadata: {namespace: shop, name: s}}
- {apiVersion: serving.example.com/v1, kind: Route, metadata: {namespace: shop, name: s}}`
	all := parse(t, services)
	want, got := normalize(all), normalize(all[:1])
	diff := (&run{record: newRecord(nil)}).compare(want, got)
	if diff != "Route shop/s is missing\nService.serving.example.com shop/s is missing" {
		t.Errorf("got %q", diff)
	}
}

// What fails with one member, too, is the operator's way.
func TestFailsNow(t *testing.T) {
	item := func(name string) object {
		return object{schema.GroupKind{Kind: "ConfigMap"}, types.NamespacedName{Name: name}}
	}
	want := &state{failing: map[object]string{item("a"): "no"}}
	require.NoError(t, failsNow(want, &state{failing: map[object]string{item("a"): "not yet"}}))
	err := failsNow(want, &state{failing: map[object]string{item("a"): "no", item("b"): "no way"}})
	if err == nil || !strings.Contains(err.Error(), "the reconcile of ConfigMap b fails: no way") ||
		strings.Contains(err.Error(), "ConfigMap a") {
		t.Errorf("got %v", err)
	}
}
