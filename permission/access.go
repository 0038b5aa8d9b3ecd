package permission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Needs returns each permission in rules separately, for Denied. namespace is empty for a ClusterRole.
func Needs(namespace string, rules []rbacv1.PolicyRule) []Error {
	var out []Error
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, verb := range r.Verbs {
						out = append(out, Error{Namespace: namespace, Group: group, Resource: resource, Verb: verb, Name: name})
					}
				}
			}
		}
	}
	return out
}

// Denied asks the API server which of the needs the user of cfg is not allowed. It returns an error if the server did
// not answer. client may be nil.
func Denied(ctx context.Context, cfg *rest.Config, client *http.Client, needs []Error) ([]*Error, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil
	if client == nil {
		var err error
		if client, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, fmt.Errorf("access reviews: %w", err)
		}
	}
	access, err := authorizationclient.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("access reviews: %w", err)
	}
	var denied []*Error
	for _, need := range needs {
		review, err := access.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: need.Namespace, Group: need.Group, Resource: need.Resource, Verb: need.Verb, Name: need.Name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("access review: %w", err)
		}
		if !review.Status.Allowed {
			need.Err = fmt.Errorf("access review: denied %s", review.Status.Reason)
			denied = append(denied, &need)
		}
	}
	if len(denied) > 0 {
		user := whoami(ctx, cfg, client)
		for _, d := range denied {
			d.User = user
		}
	}
	return denied, nil
}

// whoami returns the user as the server sees it, or "" if the server does not reveal it.
func whoami(ctx context.Context, cfg *rest.Config, http *http.Client) string {
	client, err := authenticationclient.NewForConfigAndClient(cfg, http)
	if err != nil {
		return ""
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// MissingError lists all permissions that a member is missing.
type MissingError struct {
	// Rota is the name of the rota, which the names of the manifests contain.
	Rota    string
	Missing []*Error
}

// Unwrap returns the missing permissions.
func (e *MissingError) Unwrap() []error {
	var out []error
	for _, m := range e.Missing {
		out = append(out, m)
	}
	return out
}

// Error returns the number of missing permissions and manifests for kubectl apply that add them.
func (e *MissingError) Error() string {
	user := e.Missing[0].User
	if user == "" {
		user = "this user"
	}
	return fmt.Sprintf("%s lacks %d permissions; to add them, kubectl apply:\n%s", user, len(e.Missing), e.Manifests())
}

// Manifests returns YAML that adds the missing permissions: a Role with its binding, or a ClusterRole with its binding
// for permissions in the whole cluster. The names end in -added, so that they replace nothing.
func (e *MissingError) Manifests() string {
	var namespaces []string
	for _, m := range e.Missing {
		if !slices.Contains(namespaces, m.Namespace) {
			namespaces = append(namespaces, m.Namespace)
		}
	}
	var docs []string
	name := e.Rota + "-rota-added"
	add := func(doc map[string]any) {
		text, err := yaml.Marshal(doc)
		if err != nil {
			text = []byte(err.Error())
		}
		docs = append(docs, string(text))
	}
	for _, ns := range namespaces {
		about, scope := map[string]any{"name": name}, "Cluster"
		if ns != "" {
			about["namespace"], scope = ns, ""
		}
		version := rbacv1.SchemeGroupVersion.String()
		add(map[string]any{"apiVersion": version, "kind": scope + "Role", "metadata": about, "rules": e.rules(ns)})
		add(map[string]any{
			"apiVersion": version, "kind": scope + "RoleBinding", "metadata": about,
			"subjects": []rbacv1.Subject{subject(e.Missing[0].User)},
			"roleRef":  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: scope + "Role", Name: name},
		})
	}
	return strings.TrimSpace(strings.Join(docs, "---\n"))
}

// rules returns the missing permissions in a namespace, with the verbs for each resource combined.
func (e *MissingError) rules(namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, m := range e.Missing {
		if m.Namespace != namespace {
			continue
		}
		rule := m.Rule()
		same := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool {
			return r.APIGroups[0] == rule.APIGroups[0] && r.Resources[0] == rule.Resources[0] &&
				slices.Equal(r.ResourceNames, rule.ResourceNames)
		})
		if same < 0 {
			rules = append(rules, rule)
		} else if !slices.Contains(rules[same].Verbs, m.Verb) {
			rules[same].Verbs = append(rules[same].Verbs, m.Verb)
		}
	}
	return rules
}

// subject returns the RBAC subject for a user.
func subject(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
}
