package labeller

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/rota-dev/rota/store"
)

// Check asks the API server whether the user may do what the labeller does. It returns a store.PermissionError, joined
// with others, for each permission that is missing; nil also where the server does not answer that question.
func (l *Labeller) Check(ctx context.Context) error {
	access, err := authorizationclient.NewForConfigAndClient(l.config, l.http)
	if err != nil {
		return fmt.Errorf("labeller: %w", err)
	}
	var denied []error
	user := ""
	for _, s := range l.scopes() {
		for _, verb := range verbs {
			review, err := access.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: s.namespace, Group: s.resource.Group, Resource: s.resource.Resource, Verb: verb,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return errors.Join(denied...) // what is refused later says so
			}
			if review.Status.Allowed {
				continue
			}
			if user == "" {
				user = l.user(ctx)
			}
			denied = append(denied, &store.PermissionError{
				User: user, Namespace: s.namespace, Group: s.resource.Group, Resource: s.resource.Resource, Verb: verb,
				Err: fmt.Errorf("access review: denied %s", review.Status.Reason),
			})
		}
	}
	return errors.Join(denied...)
}

// user returns who the server takes us for, or "" where it does not say.
func (l *Labeller) user(ctx context.Context) string {
	client, err := authenticationclient.NewForConfigAndClient(l.config, l.http)
	if err != nil {
		return ""
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}
