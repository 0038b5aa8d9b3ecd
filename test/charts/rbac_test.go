package charts

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/require"
)

var (
	websites = schema.GroupVersionResource{Group: "web.example.com", Version: "v1", Resource: "websites"}
	owned    = []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "configmaps"},
	}
)

// grants are the permissions that objects grant to the ServiceAccount of the operator, one by one: by namespace, group,
// resource, name and verb.
func grants(t *testing.T, objects []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, kind := range []string{"Role", "ClusterRole"} {
		for _, obj := range only(objects, kind) {
			role := into[rbacv1.ClusterRole](t, obj) // a Role has the same fields
			rules[kind+" "+obj.GetNamespace()+" "+obj.GetName()] = role.Rules
		}
	}
	out, bound := map[string]bool{}, 0
	for _, kind := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, obj := range only(objects, kind) {
			binding := into[rbacv1.RoleBinding](t, obj)
			who := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "operators", Name: "website-operator"}}
			if diff := cmp.Diff(who, binding.Subjects); diff != "" {
				t.Errorf("%s %s: %s", kind, obj.GetName(), diff)
			}
			granted, ok := rules[binding.RoleRef.Kind+" "+obj.GetNamespace()+" "+binding.RoleRef.Name]
			if !ok {
				t.Fatalf("%s %s is about a role that is not there: %v", kind, obj.GetName(), binding.RoleRef)
			}
			bound++
			maps.Copy(out, oneByOne(obj.GetNamespace(), granted))
		}
	}
	if bound != len(rules) {
		t.Errorf("%d bindings of %d roles", bound, len(rules))
	}
	return out
}

// oneByOne returns the permissions of rules in a namespace, "" for all.
func oneByOne(namespace string, rules []rbacv1.PolicyRule) map[string]bool {
	out := map[string]bool{}
	for _, need := range permission.Needs(namespace, rules) {
		out[fmt.Sprintf("%s %s/%s %s %s", need.Namespace, need.Group, need.Resource, need.Name, need.Verb)] = true
	}
	return out
}

// operatorRules are what the reconciler needs, as the example's manifests have it.
func operatorRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	first, _, _ := bytes.Cut(config.Role, []byte("\n---\n"))
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.UnmarshalStrict(first, &role))
	return role.Rules
}

// TestRights: the chart grants what the project says that a member needs, and what the operator needs, and nothing
// else: for each delivery, in all namespaces and in some.
func TestRights(t *testing.T) {
	everything := append([]schema.GroupVersionResource{websites}, owned...)
	all := []string{""}
	for name, c := range map[string]struct {
		namespaces []string
		labelled   []schema.GroupVersionResource
	}{
		"website": {all, nil}, "label": {all, everything}, "slotlabel": {all, everything}, "shardselector": {all, owned},
		"namespaces": {[]string{"shops"}, nil}, "slotlabel-namespaces": {[]string{"blogs", "shops"}, everything},
	} {
		want := oneByOne("operators", permission.Rules("website"))
		for _, at := range c.namespaces {
			maps.Copy(want, oneByOne(at, operatorRules(t)))
			maps.Copy(want, oneByOne(at, labeller.Rules(c.labelled...)))
		}
		if diff := cmp.Diff(sorted(want), sorted(grants(t, rendered(t, name)))); diff != "" {
			t.Errorf("%s: -needed +granted:\n%s", name, diff)
		}
	}
}
