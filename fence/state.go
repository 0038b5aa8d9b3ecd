package fence

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/permission"
)

// State is the state of a rota's fence in a cluster. The zero State means that there is no fence.
type State struct {
	// Resources are the resources whose writes the policy judges. It is empty if there is no policy.
	Resources []schema.GroupResource
	// Denies is true if the binding has the action Deny. A policy that only warns or audits refuses nothing.
	Denies bool
	// Off is true if the annotation on the table's ConfigMap takes the fence down.
	Off bool
}

// Look reads which fence a rota has. It needs permission to get ValidatingAdmissionPolicies, their bindings and the
// table's ConfigMap. It does not test whether the fence works; see Verify.
func Look(ctx context.Context, cfg *rest.Config, rota types.NamespacedName) (State, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return State{}, fmt.Errorf("fence of rota %s: %w", rota, err)
	}
	name, api := Options{Rota: rota}.ObjectName(), client.AdmissionregistrationV1()
	policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return State{}, nil
	}
	if err != nil {
		return State{}, refused(err, rota, "validatingadmissionpolicies", name)
	}
	var s State
	if policy.Spec.MatchConstraints != nil {
		s.Resources = judged(policy.Spec.MatchConstraints.ResourceRules)
	}
	binding, err := api.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.Denies = slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)
	case !apierrors.IsNotFound(err):
		return State{}, refused(err, rota, "validatingadmissionpolicybindings", name)
	}
	cm, err := client.CoreV1().ConfigMaps(rota.Namespace).Get(ctx, rota.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.Off = cm.Annotations[Annotation] == Off
	case !apierrors.IsNotFound(err):
		return State{}, fmt.Errorf("fence of rota %s: %w", rota, err)
	}
	return s, nil
}

// refused wraps the error of a request for an object of the fence. A missing permission becomes a permission.Error.
func refused(err error, rota types.NamespacedName, resource, name string) error {
	err = permission.Refused(err, permission.Error{Group: admissionregistrationv1.GroupName, Resource: resource,
		Verb: "get", Name: name})
	return fmt.Errorf("fence of rota %s: %w", rota, err)
}

// judged is the inverse of rules.
func judged(all []admissionregistrationv1.NamedRuleWithOperations) []schema.GroupResource {
	var out []schema.GroupResource
	for _, r := range all {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				if !strings.Contains(resource, "/") {
					out = append(out, schema.GroupResource{Group: group, Resource: resource})
				}
			}
		}
	}
	return out
}

// String describes the fence in one line.
func (s State) String() string {
	texts := make([]string, len(s.Resources))
	for i, r := range s.Resources {
		texts[i] = resourceText(r)
	}
	what := strings.Join(texts, ", ")
	switch {
	case len(texts) == 0:
		return "none: a late write of a replica that was paused can be accepted; `rota fence` has the API server refuse it"
	case !s.Denies:
		return "installed for " + what + ", but not bound so that it refuses: `rota fence --apply` binds it"
	case s.Off:
		return fmt.Sprintf("installed for %s, but taken down by the annotation %s on the table", what, Annotation)
	default:
		return "refuses writes to " + what + " by processes that are not members"
	}
}
