package chart

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
)

var (
	websites = schema.GroupVersionResource{Group: "web.example.com", Version: "v1", Resource: "websites"}
	owned    = []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "configmaps"},
	}
)

// grants are the permissions that objects grant to the ServiceAccount of a release, one by one: by namespace, group,
// resource, name and verb.
func grants(t *testing.T, objects []*unstructured.Unstructured, account string) map[string]bool {
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
			who := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "operators", Name: account}}
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
	if err := yaml.UnmarshalStrict(first, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// TestRights: the chart grants what the project says that a member needs, and what the operator needs, and nothing
// else: for each delivery, in all namespaces and in some.
func TestRights(t *testing.T) {
	chart := load(t)
	everything := append([]schema.GroupVersionResource{websites}, owned...)
	for _, c := range []struct {
		delivery string
		label    bool
		labelled []schema.GroupVersionResource
	}{
		{"Filter", false, nil}, {"Filter", true, everything}, {"SlotLabel", false, everything},
		{"SlotLabel", true, everything}, {"ShardSelector", false, owned},
	} {
		for _, namespaces := range [][]any{{}, {"shops"}, {"blogs", "shops"}} {
			t.Run(fmt.Sprintf("%s/label=%t/%v", c.delivery, c.label, namespaces), func(t *testing.T) {
				v := set(set(nil, "rota.delivery", c.delivery), "rota.label", c.label)
				v = set(v, "rota.namespaces", namespaces)
				manifests, _, err := example(v).text(chart)
				if err != nil {
					t.Fatal(err)
				}
				want := oneByOne("operators", permission.Rules("website"))
				for _, at := range orAll(namespaces) {
					maps.Copy(want, oneByOne(at.(string), operatorRules(t)))
					maps.Copy(want, oneByOne(at.(string), labeller.Rules(c.labelled...)))
				}
				got := grants(t, parse(t, manifests), "website-operator")
				if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
					t.Errorf("-needed +granted:\n%s", diff)
				}
			})
		}
	}
}

// orAll returns the namespaces, or "" for all.
func orAll(namespaces []any) []any {
	if len(namespaces) == 0 {
		return []any{""}
	}
	return namespaces
}

// TestRoleOfRota: the Role alone has the project's rules, in their order, without the operator's.
func TestRoleOfRota(t *testing.T) {
	objects := example(set(nil, "rota.delivery", "SlotLabel")).objects(t)
	role := into[rbacv1.Role](t, one(t, objects, "Role"))
	if diff := cmp.Diff(permission.Rules("website"), role.Rules); diff != "" {
		t.Errorf("-permission.Rules +Role:\n%s", diff)
	}
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ClusterRole" && o.GetName() == "website-operator-rota-labels"
	})
	if at < 0 {
		t.Fatal("no ClusterRole website-operator-rota-labels")
	}
	labels := into[rbacv1.ClusterRole](t, objects[at])
	want := labeller.Rules(append([]schema.GroupVersionResource{websites}, owned...)...)
	if diff := cmp.Diff(want, labels.Rules); diff != "" {
		t.Errorf("-labeller.Rules +ClusterRole:\n%s", diff)
	}
}

// TestNoRights: without rbac.create there are none, and without a ServiceAccount of its own the chart needs a name.
func TestNoRights(t *testing.T) {
	objects := example(set(nil, "rota.rbac.create", false)).objects(t)
	for _, obj := range objects {
		if gv, _ := schema.ParseGroupVersion(obj.GetAPIVersion()); gv.Group == rbacv1.GroupName {
			t.Errorf("%s %s", obj.GetKind(), obj.GetName())
		}
	}
	v := set(set(nil, "rota.serviceAccount.create", false), "rota.serviceAccount.name", "mine")
	objects = example(v).objects(t)
	if n := len(only(objects, "ServiceAccount")); n > 0 {
		t.Errorf("%d ServiceAccounts", n)
	}
	grants(t, objects, "mine")
}
