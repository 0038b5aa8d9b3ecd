package permission_test

import (
	"strings"
	"testing"

	"github.com/rota-dev/rota/permission"
)

func TestPermissionErrorNamesTheKindOfRole(t *testing.T) {
	for namespace, want := range map[string]string{
		"ns": "jane may not list pods in namespace ns; add this to the rules of its Role there:\n",
		"":   "jane may not list pods in the cluster; add this to the rules of its ClusterRole:\n",
	} {
		err := &permission.Error{User: "jane", Namespace: namespace, Resource: "pods", Verb: "list"}
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is missing is told at once, in manifests that add it: verbs together, Roles apart from ClusterRoles, accounts as
// RBAC names them.
func TestMissingErrorHasManifests(t *testing.T) {
	user := "system:serviceaccount:ops:web"
	err := &permission.MissingError{Rota: "web", Missing: []*permission.Error{
		{User: user, Namespace: "ops", Resource: "configmaps", Name: "web", Verb: "get"},
		{User: user, Namespace: "ops", Resource: "configmaps", Name: "web", Verb: "update"},
		{User: user, Group: "apps", Resource: "deployments", Verb: "patch"},
	}}
	want := `system:serviceaccount:ops:web lacks 3 permissions; to add them, kubectl apply:
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: web-rota-added
  namespace: ops
rules:
- apiGroups:
  - ""
  resourceNames:
  - web
  resources:
  - configmaps
  verbs:
  - get
  - update
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: web-rota-added
  namespace: ops
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: web-rota-added
subjects:
- kind: ServiceAccount
  name: web
  namespace: ops
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: web-rota-added
rules:
- apiGroups:
  - apps
  resources:
  - deployments
  verbs:
  - patch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: web-rota-added
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: web-rota-added
subjects:
- kind: ServiceAccount
  name: web
  namespace: ops`
	if err.Error() != want {
		t.Errorf("got\n%s\nwant\n%s", err, want)
	}
}
