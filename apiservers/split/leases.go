package split

import (
	"fmt"
	"strings"
)

// Holder is who holds a Lease that a hold file was applied to. No process has that name, so nobody leads.
const Holder = "rota-split-hold"

// holdSeconds is the duration of a hold: 10 years.
const holdSeconds = 315360000

// rbac lets kube-controller-manager use the new Leases. Kubernetes v1.36 allows it in kube-system already, for all
// Leases; other versions and namespaces do not.
func (p *Plan) rbac() File {
	const text = `%[1]s: kube-controller-manager may use the Leases of its groups.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: rota:kube-controller-manager-groups
  namespace: %[2]s
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [%[3]s]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: rota:kube-controller-manager-groups
  namespace: %[2]s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: rota:kube-controller-manager-groups
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: system:kube-controller-manager
`
	return File{"rbac.yaml", fmt.Appendf(nil, text, header, p.Namespace(), strings.Join(p.leases(), ", "))}
}

// hold returns Leases that belong to nobody for ten years. A leader that finds its Lease so stops within its renew
// deadline, and no other begins until the Lease is deleted.
func (p *Plan) hold(name string, leases ...string) File {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: nobody can hold these Leases until they are deleted.\n", header)
	for i, lease := range leases {
		if i > 0 {
			b.WriteString("---\n")
		}
		fmt.Fprintf(&b, `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: %s
  namespace: %s
spec:
  holderIdentity: %s
  leaseDurationSeconds: %d
`, lease, p.Namespace(), Holder, holdSeconds)
	}
	return File{name, []byte(b.String())}
}
