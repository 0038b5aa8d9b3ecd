package labeller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

var domains = schema.GroupVersionResource{Group: "labeller.rota.dev", Version: "v1", Resource: "domains"}

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: domains.labeller.rota.dev}
spec:
  group: labeller.rota.dev
  scope: Cluster
  names: {kind: Domain, plural: domains, singular: domain}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// user makes a user that has exactly the permissions of Rules, or none.
func user(t *testing.T, name string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	c := controlplane.For(t)
	config, err := c.UserConfig(name)
	require.NoError(t, err)
	config.QPS = -1
	rbac := kubernetes.NewForConfigOrDie(c.Config()).RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User",
			Name: name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for go test -count
		rbac.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		rbac.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return config
}

// cluster reads and writes as an administrator.
type cluster struct {
	t    *testing.T
	maps kubernetes.Interface
	meta metadata.Interface
}

func newCluster(t *testing.T) cluster {
	config := controlplane.For(t).Config()
	return cluster{t, kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config)}
}

func (c cluster) create(ns, name string, labels map[string]string) {
	c.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "v"}}
	if _, err := c.maps.CoreV1().ConfigMaps(ns).Create(c.t.Context(), cm, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) patch(ns, name, labels string) {
	c.t.Helper()
	if _, err := c.maps.CoreV1().ConfigMaps(ns).Patch(c.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":`+labels+`}}`), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) get(r schema.GroupVersionResource, ns, name string) *metav1.PartialObjectMetadata {
	c.t.Helper()
	obj, err := c.meta.Resource(r).Namespace(ns).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return obj
}

// comes waits until an object has the right label.
func (c cluster) comes(what string, r schema.GroupVersionResource, ns, name string) time.Duration {
	c.t.Helper()
	return eventually(c.t, what, func() bool {
		return c.get(r, ns, name).Labels[label] == labeller.Value(slot.KeyName, ns, name)
	})
}

func TestAPIServer(t *testing.T) {
	plane := controlplane.For(t)
	require.NoError(t, plane.InstallCRDs(t.Context(), []byte(crds)))
	a, b := controlplane.Namespace(t), controlplane.Namespace(t)
	c := newCluster(t)
	c.create(a, "old", map[string]string{"app": "x"})
	c.create(b, "old", nil)
	c.create(b, "malformed", map[string]string{label: "04095"})
	c.create(b, "copied", map[string]string{label: labeller.Value(slot.KeyName, a, "old")})
	resources := []schema.GroupVersionResource{configMaps, domains}
	l := start(t, user(t, "labels-all", labeller.Rules(resources...)), labeller.Options{Resources: resources})

	for _, name := range []string{"malformed", "copied", "old"} {
		c.comes("found at the start", configMaps, b, name)
	}
	c.comes("found at the start", configMaps, a, "old")
	checkFields(t, c, a)
	eventually(t, "the scan ends", func() bool { return l.Stats().Scans > 0 })

	c.create(a, "new", nil)
	c.comes("a new object", configMaps, a, "new")
	domain := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "labeller.rota.dev/v1", "kind": "Domain",
		"metadata": map[string]any{"name": "d"}}}
	if _, err := dynamic.NewForConfigOrDie(plane.Config()).Resource(domains).
		Create(t.Context(), domain, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer c.meta.Resource(domains).Delete(context.Background(), "d", metav1.DeleteOptions{})
	c.comes("a cluster-scoped object", domains, "", "d")
	c.patch(a, "new", `{"rota.dev/hash":null}`)
	t.Logf("removed: put right after %v", c.comes("a removed label", configMaps, a, "new").Round(time.Millisecond))
	c.patch(a, "new", `{"rota.dev/hash":"x"}`)
	t.Logf("malformed: put right after %v", c.comes("a malformed label", configMaps, a, "new").Round(time.Millisecond))
	c.patch(a, "new", `{"rota.dev/hash":"`+labeller.Value(slot.KeyName, b, "old")+`"}`)
	l.Fix(configMaps, c.get(configMaps, a, "new"))
	t.Logf("edited: put right after %v", c.comes("an edited label", configMaps, a, "new").Round(time.Millisecond))
	c.patch(a, "new", `{"rota.dev/hash":"`+labeller.Value(slot.KeyName, b, "old")+`"}`)
	require.NoError(t, l.Scan(t.Context()))
	c.comes("an edited label that a scan found", configMaps, a, "new")

	require.NoError(t, c.maps.CoreV1().ConfigMaps(a).Delete(t.Context(), "new", metav1.DeleteOptions{}))
	c.create(a, "new", nil)
	c.comes("a namesake", configMaps, a, "new")
	if got := l.Stats(); got.Failures != 0 || got.Throttled != 0 {
		t.Errorf("stats %+v", got)
	}
}

// checkFields checks that the object "old" in namespace ns has the label and is as it was otherwise.
func checkFields(t *testing.T, c cluster, ns string) {
	t.Helper()
	cm, err := c.maps.CoreV1().ConfigMaps(ns).Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	if cm.Data["k"] != "v" || len(cm.Data) != 1 || cm.Labels["app"] != "x" || len(cm.Labels) != 2 {
		t.Errorf("labels %v, data %v", cm.Labels, cm.Data)
	}
	for _, entry := range cm.ManagedFields {
		fields := entry.FieldsV1.String()
		has := strings.Contains(fields, label)
		if ours := entry.Manager == "rota-labeller"; ours != has {
			t.Errorf("manager %s: %s", entry.Manager, fields)
		} else if want := `{"f:metadata":{"f:labels":{"f:rota.dev/hash":{}}}}`; ours && fields != want {
			t.Errorf("managed by %s: %s, want %s", entry.Manager, fields, want)
		}
	}
}

func TestRefusesWithoutPermission(t *testing.T) {
	_ = controlplane.For(t)
	for _, c := range []struct {
		name       string
		rules      []rbacv1.PolicyRule
		namespaces []string
		want       []string
	}{
		{"nobody", nil, nil, []string{
			"nobody may not list domains.labeller.rota.dev in the cluster", "ClusterRole", `verbs: ["list"]`, `verbs: ["watch"]`,
			`verbs: ["patch"]`,
		}},
		{"reader", []rbacv1.PolicyRule{{APIGroups: []string{domains.Group}, Resources: []string{"domains"},
			Verbs: []string{"list", "watch"}}}, nil, []string{
			"reader may not patch domains.labeller.rota.dev in the cluster; add this to the rules of its ClusterRole:\n" +
				"- apiGroups: [\"labeller.rota.dev\"]\n  resources: [\"domains\"]\n  verbs: [\"patch\"]",
		}},
		{"local", nil, []string{"team-a"}, []string{"local may not watch domains.labeller.rota.dev in namespace team-a; add " +
			"this to the rules of its Role there"}},
	} {
		l, err := labeller.New(user(t, c.name, c.rules),
			labeller.Options{Label: label, Resources: []schema.GroupVersionResource{domains}, Namespaces: c.namespaces})
		require.NoError(t, err)
		err = l.Run(t.Context())
		var denied *permission.Error
		if !errors.As(err, &denied) {
			t.Fatalf("%s: %v, want a PermissionError", c.name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %q in it", c.name, err, want)
			}
		}
		// The same comes of a refusal later on.
		if err := l.Scan(t.Context()); c.name != "reader" && !errors.As(err, &denied) {
			t.Errorf("%s: scan: %v, want a PermissionError", c.name, err)
		}
	}
}
