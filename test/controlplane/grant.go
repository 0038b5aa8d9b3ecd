package controlplane

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/require"
)

// User is a user as the subject of a binding.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// Account is a ServiceAccount as the subject of a binding.
func Account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Roles returns a role with these rules, and its binding to a subject, to be created: a Role in the namespace, or a
// ClusterRole if namespace is "".
func Roles(namespace, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) []client.Object {
	about, subjects := metav1.ObjectMeta{Namespace: namespace, Name: name}, []rbacv1.Subject{to}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	if namespace != "" {
		return []client.Object{
			&rbacv1.Role{ObjectMeta: about, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: about, Subjects: subjects, RoleRef: ref},
		}
	}
	ref.Kind = "ClusterRole"
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: about, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: about, Subjects: subjects, RoleRef: ref},
	}
}

// Grant makes what Roles returns. API servers learn of roles a moment later.
func (c *ControlPlane) Grant(tb testing.TB, namespace, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	tb.Helper()
	c.create(tb, Roles(namespace, name, to, rules...)...)
}

// MakeAccount makes a ServiceAccount with these permissions in its namespace.
func (c *ControlPlane) MakeAccount(tb testing.TB, namespace, name string, rules ...rbacv1.PolicyRule) {
	tb.Helper()
	c.create(tb, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	if len(rules) > 0 {
		c.Grant(tb, namespace, name, Account(namespace, name), rules...)
	}
}

// Token returns a token of a ServiceAccount for audiences. Without any it is for the API server.
func (c *ControlPlane) Token(tb testing.TB, namespace, account string, audiences ...string) string {
	tb.Helper()
	return c.TokenOf(tb, namespace, account, authenticationv1.TokenRequestSpec{Audiences: audiences})
}

// TokenOf returns the token that a request asks for.
func (c *ControlPlane) TokenOf(tb testing.TB, namespace, account string, of authenticationv1.TokenRequestSpec) string {
	tb.Helper()
	request, err := kubernetes.NewForConfigOrDie(c.Config()).CoreV1().ServiceAccounts(namespace).CreateToken(tb.Context(),
		account, &authenticationv1.TokenRequest{Spec: of}, metav1.CreateOptions{})
	require.NoError(tb, err)
	return request.Status.Token
}

func (c *ControlPlane) create(tb testing.TB, objects ...client.Object) {
	tb.Helper()
	api, err := client.New(c.Config(), client.Options{})
	require.NoError(tb, err)
	for _, o := range objects {
		require.NoError(tb, api.Create(tb.Context(), o))
	}
}
