package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/permission"
)

// Verb is the verb that workers need for the resources of a kind.
const Verb = "take"

const (
	// allowedTTL is how long a permission is cached, and so how late its removal is noticed.
	allowedTTL = time.Minute
	// deniedTTL is how long a missing permission is cached, and so how late a grant is noticed.
	deniedTTL = 5 * time.Second
	// resourceTTL is how long the resource of a kind is cached, and missingTTL how long a failed lookup is.
	resourceTTL, missingTTL = 10 * time.Minute, 2 * time.Second
)

// Authorize checks whether a user may take keys of a kind in the given namespaces, or in all if there are none. The
// error is an *Error: wire.ProblemForbidden with a detail that contains the missing rule, or wire.ProblemUnavailable.
func (g *Guard) Authorize(ctx context.Context, u User, kind schema.GroupKind, namespaces []string) error {
	resource, err := g.Resource(kind)
	if err != nil {
		return err
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		if err := g.authorize(ctx, u, resource, namespace); err != nil {
			return err
		}
	}
	return nil
}

func (g *Guard) authorize(ctx context.Context, u User, resource schema.GroupResource, namespace string) error {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: Verb, Group: resource.Group, Resource: resource.Resource,
		},
	}
	if len(u.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range u.Extra {
			spec.Extra[k] = v
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("access review of %s: %w", u.Name, err)
	}
	sum := sha256.Sum256(text)
	key := "access/" + string(sum[:])
	if v, ok := g.decisions.Get(key); ok {
		return decision(v)
	}
	answer := g.flights.DoChan(key, func() (any, error) { return g.reviewAccess(key, spec) })
	select {
	case a := <-answer:
		if a.Err != nil {
			return a.Err
		}
		return decision(a.Val)
	case <-ctx.Done():
		return &Error{
			Problem: wire.ProblemUnavailable, Detail: "the request ended before the permission was reviewed",
			RetryAfter: retrySoon,
		}
	}
}

// decision returns a cached decision as an error: a detail, or nothing.
func decision(v any) error {
	if detail, _ := v.(string); detail != "" {
		return &Error{Problem: wire.ProblemForbidden, Detail: detail}
	}
	return nil
}

// reviewAccess asks the API server and caches the answer: a detail, or nothing if the user may.
func (g *Guard) reviewAccess(key string, spec authorizationv1.SubjectAccessReviewSpec) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
	defer cancel()
	review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		g.failed(reviewAccess, permission.Refused(err, permission.Error{
			Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create",
		}))
		return "", &Error{
			Problem: wire.ProblemUnavailable, Detail: "the API server cannot be asked about permissions", RetryAfter: retrySoon,
		}
	}
	if review.Status.Allowed && !review.Status.Denied {
		g.reviews.WithLabelValues(reviewAccess, outcomeOK).Inc()
		g.decisions.Add(key, "", allowedTTL)
		return "", nil
	}
	g.reviews.WithLabelValues(reviewAccess, outcomeRefused).Inc()
	about := spec.ResourceAttributes
	missing := &permission.Error{
		User: spec.User, Namespace: about.Namespace, Group: about.Group, Resource: about.Resource, Verb: about.Verb,
	}
	detail := missing.Error()
	if text := review.Status.EvaluationError; text != "" {
		detail += "\nThe authorizer says: " + cut(text)
	}
	g.decisions.Add(key, detail, deniedTTL)
	return detail, nil
}

// Resource returns the resource of a kind. The error is an *Error with wire.ProblemUnavailable.
func (g *Guard) Resource(kind schema.GroupKind) (schema.GroupResource, error) {
	switch v, _ := g.resources.Get(kind); v := v.(type) {
	case schema.GroupResource:
		return v, nil
	case *Error:
		return schema.GroupResource{}, v
	}
	v, err, _ := g.flights.Do("resource/"+kind.String(), func() (any, error) { return g.lookUp(kind) })
	resource, _ := v.(schema.GroupResource)
	return resource, err
}

func (g *Guard) lookUp(kind schema.GroupKind) (schema.GroupResource, error) {
	m, err := g.mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		g.mapper.Reset() // it may have been installed
		m, err = g.mapper.RESTMapping(kind)
	}
	if err == nil {
		g.resources.Add(kind, m.Resource.GroupResource(), resourceTTL)
		return m.Resource.GroupResource(), nil
	}
	refusal := &Error{
		Problem: wire.ProblemUnavailable, RetryAfter: retrySoon,
		Detail: fmt.Sprintf("the API server cannot be asked which resource %s is", kind),
	}
	if meta.IsNoMatchError(err) {
		refusal.Detail = fmt.Sprintf("the API server does not serve %s: install its CustomResourceDefinition", kind)
	} else {
		g.failed(reviewAccess, errors.Join(errors.New(refusal.Detail), err))
	}
	g.resources.Add(kind, refusal, missingTTL)
	return schema.GroupResource{}, refusal
}
