package permission

import (
	"fmt"
	"regexp"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Error is returned for a request that the API server refused because of a missing permission.
type Error struct {
	// User is the name of the user, usually "system:serviceaccount:<namespace>:<name>", or empty if the server did not
	// reveal it.
	User string
	// Namespace is the namespace, empty for the whole cluster.
	Namespace string
	// Group, Resource and Verb describe the request. Name is the object's name, if the request was about one object.
	Group, Resource, Verb, Name string
	// Err is the server's error.
	Err error
}

// Rule returns the rule that is missing from the user's Role, or from its ClusterRole if Namespace is empty.
func (e *Error) Rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{e.Group}, Resources: []string{e.Resource}, Verbs: []string{e.Verb}}
	if e.Name != "" {
		rule.ResourceNames = []string{e.Name}
	}
	return rule
}

// Error returns the user, the missing permission, and the rule to add as YAML.
func (e *Error) Error() string {
	var b strings.Builder
	who := e.User
	if who == "" {
		who = "this user"
	}
	fmt.Fprintf(&b, "%s may not %s %s", who, e.Verb, e.Resource)
	if e.Group != "" {
		fmt.Fprintf(&b, ".%s", e.Group)
	}
	if e.Namespace == "" {
		b.WriteString(" in the cluster; add this to the rules of its ClusterRole:\n")
	} else {
		fmt.Fprintf(&b, " in namespace %s; add this to the rules of its Role there:\n", e.Namespace)
	}
	fmt.Fprintf(&b, "- apiGroups: [%q]\n  resources: [%q]\n", e.Group, e.Resource)
	if e.Name != "" {
		fmt.Fprintf(&b, "  resourceNames: [%q]\n", e.Name)
	}
	fmt.Fprintf(&b, "  verbs: [%q]", e.Verb)
	return b.String()
}

// Unwrap returns the server's error.
func (e *Error) Unwrap() error { return e.Err }

// rbacMessage matches a refusal by an authorizer. Admission (quotas, policies, terminating namespaces) also answers
// 403, with other messages.
var rbacMessage = regexp.MustCompile(`User "([^"]*)" cannot `)

// Refused turns an authorizer's refusal into a copy of want with User and Err filled in. It returns other errors
// unchanged.
func Refused(err error, want Error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	match := rbacMessage.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	want.User, want.Err = match[1], err
	return &want
}

// Rules returns the permissions that a member of the rota needs in the rota's namespace, for a Role.
//
// RBAC cannot limit create to a name, because the name of a new object is not in the request's URL.
func Rules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name},
			Verbs: []string{"get", "list", "watch", "update"},
		},
		// The Leases of members and of their reports (package coverage). Their names are not known beforehand.
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
		},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}
}

// ElectionRules returns the permissions that a member needs in the namespace of a leader election Lease to hold it for
// the rota (rota.Options.LeaderElectionID). In the rota's own namespace, Rules already includes them. Without list and
// watch a member still works, but notices only at its next read, after about a RetryPeriod, that another candidate took
// the Lease.
func ElectionRules(lease string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{lease},
			Verbs: []string{"get", "list", "watch", "update"},
		},
	}
}
