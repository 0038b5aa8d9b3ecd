// Package website has the tests of the example's files; the operator is in stock and sharded.
package website

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/internal/lines"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/store"
)

// TestFiveLines: an operator becomes sharded in at most five lines, and the README shows them.
func TestFiveLines(t *testing.T) { lines.Few(t, 5, 5) }

// TestRole: the manifest grants what a member needs, no more and no less.
func TestRole(t *testing.T) {
	first, _, _ := bytes.Cut(config.RotaRole, []byte("\n---\n"))
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(first, &role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(store.Rules("website"), role.Rules); diff != "" {
		t.Errorf("config/rbac/rota.yaml (-store.Rules +manifest):\n%s", diff)
	}
}
