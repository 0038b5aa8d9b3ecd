package fence

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// KeeperName is the name of the policy and the binding that Keeper returns.
const KeeperName = "rota-fence-keeper"

// Keeper returns a policy and a binding that match no request. All fences of a cluster share them.
// They make API servers keep watching ConfigMaps. An API server that has no binding with a ConfigMap as param for a
// second stops watching them until it is restarted (kubernetes/kubernetes#130887). A fence that is removed and applied
// again would then use the table from the time of the removal, and refuse all members that have joined since. So the
// keeper stays when fences are removed. Its annotations make Argo CD, Flux and Helm keep it.
func Keeper() (
	*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) {
	meta := metav1.ObjectMeta{Name: KeeperName, Annotations: map[string]string{
		"argocd.argoproj.io/sync-options":   "Prune=false,Delete=false",
		"kustomize.toolkit.fluxcd.io/prune": "disabled",
		"helm.sh/resource-policy":           "keep",
		"kubernetes.io/description": "Keeps API servers following ConfigMaps; fences of Rota depend on it. " +
			"Do not delete it.",
	}}
	nothing := admissionregistrationv1.NamedRuleWithOperations{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"no-such-group.rota.dev"}, APIVersions: []string{"v1"}, Resources: []string{"nothing"},
			},
		},
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ParamKind:     paramKind(),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{nothing},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: *meta.DeepCopy(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: KeeperName,
			ParamRef: &admissionregistrationv1.ParamRef{
				Namespace: "kube-system", Name: "no-such-configmap",
				ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
			},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	return policy, binding
}

func paramKind() *admissionregistrationv1.ParamKind {
	return &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
}
