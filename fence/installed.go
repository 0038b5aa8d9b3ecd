package fence

import (
	"context"
	"fmt"
	"regexp"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fenced matches the condition that selects the ServiceAccount, and captures its namespace and name.
var fenced = regexp.MustCompile(`'system:serviceaccount:([^:']+):([^:']+)'`)

// Installed reads the options of a rota's fence, and how the fence differs from what Apply of this release would make.
// Resources are in order of groups, as in the policy. Without a fence, both results are empty. Installed needs the same
// permissions as Look.
func Installed(ctx context.Context, cfg *rest.Config, rota types.NamespacedName,
) (o Options, outdated []string, err error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return Options{}, nil, fmt.Errorf("fence of rota %s: %w", rota, err)
	}
	o.Rota = rota
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy, err := policies.Get(ctx, o.ObjectName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Options{}, nil, nil
	}
	if err != nil {
		return Options{}, nil, fmt.Errorf("fence of rota %s: %w", rota, err)
	}
	if policy.Spec.MatchConstraints != nil {
		o.Resources = judged(policy.Spec.MatchConstraints.ResourceRules)
	}
	for _, c := range policy.Spec.MatchConditions {
		if m := fenced.FindStringSubmatch(c.Expression); m != nil {
			o.ServiceAccount = types.NamespacedName{Namespace: m[1], Name: m[2]}
		}
	}
	want, wantBinding, err := Policy(o)
	if err != nil {
		return o, []string{"its policy is not one of rota fence: " + err.Error()}, nil //nolint:nilerr // that is the finding
	}
	differs := func(what string, err error, same bool) error {
		switch {
		case apierrors.IsNotFound(err):
			outdated = append(outdated, what+" is missing")
		case err != nil:
			return fmt.Errorf("fence of rota %s: %w", rota, err)
		case !same:
			outdated = append(outdated, what+" is not as this release makes it")
		}
		return nil
	}
	if err := differs("its policy", nil, samePolicy(want, policy)); err != nil {
		return o, nil, err
	}
	binding, err := bindings.Get(ctx, o.ObjectName(), metav1.GetOptions{})
	if err := differs("its binding", err, sameBinding(wantBinding, binding)); err != nil {
		return o, nil, err
	}
	wantKeeper, wantKeeperBinding := Keeper()
	keeper, err := policies.Get(ctx, KeeperName, metav1.GetOptions{})
	if err := differs("the policy "+KeeperName, err, samePolicy(wantKeeper, keeper)); err != nil {
		return o, nil, err
	}
	binding, err = bindings.Get(ctx, KeeperName, metav1.GetOptions{})
	return o, outdated, differs("the binding "+KeeperName, err, sameBinding(wantKeeperBinding, binding))
}

// samePolicy compares the fields that a fence sets. The API server fills in the others.
func samePolicy(want, got *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	w, g := want.Spec, got.Spec
	return equality.Semantic.DeepDerivative(w, g) && len(w.Validations) == len(g.Validations) &&
		len(w.Variables) == len(g.Variables) && len(w.MatchConditions) == len(g.MatchConditions)
}

func sameBinding(want, got *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	w, g := want.Spec, got.Spec
	return equality.Semantic.DeepDerivative(w, g) && len(w.ValidationActions) == len(g.ValidationActions) &&
		g.MatchResources == nil
}
