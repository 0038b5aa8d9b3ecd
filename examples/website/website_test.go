// Package website has the tests of the example's files; the operator is in stock and sharded.
package website

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/internal/lines"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
)

// TestFiveLines: an operator becomes sharded in at most five lines, and the README shows them.
func TestFiveLines(t *testing.T) { lines.Few(t, 5, 5) }

// TestRole: the manifests grant what a member needs, no more and no less.
func TestRole(t *testing.T) {
	first, _, _ := bytes.Cut(config.RotaRole, []byte("\n---\n"))
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(first, &role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(permission.Rules("website"), role.Rules); diff != "" {
		t.Errorf("config/rbac/rota.yaml (-permission.Rules +manifest):\n%s", diff)
	}
	first, _, _ = bytes.Cut(config.LabelRole, []byte("\n---\n"))
	var labels rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(first, &labels); err != nil {
		t.Fatal(err)
	}
	want := labeller.Rules(webv1.GroupVersion.WithResource("websites"), appsv1.SchemeGroupVersion.WithResource("deployments"),
		corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("configmaps"))
	if diff := cmp.Diff(want, labels.Rules); diff != "" {
		t.Errorf("config/rbac/labels.yaml (-labeller.Rules +manifest):\n%s", diff)
	}
}
