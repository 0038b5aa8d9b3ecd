package fence

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
)

// Policy returns the policy and the binding that make up the fence of a rota. It does no I/O; the same options give the
// same objects.
func Policy(o Options) (
	*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, error,
) {
	if err := o.Validate(); err != nil {
		return nil, nil, err
	}
	meta := metav1.ObjectMeta{Name: o.ObjectName(), Labels: map[string]string{names.LabelRota: o.Rota.Name}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			// A request that cannot be judged is refused. Until an API server that has just started has read the ConfigMaps,
			// that includes other users' requests: it waits a second for the ConfigMaps before it checks match conditions.
			FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
			ParamKind:        paramKind(),
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules(o)},
			MatchConditions:  conditions(o),
			Variables:        variables(),
			Validations:      validations(o),
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: *meta.DeepCopy(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: o.ObjectName(),
			ParamRef: &admissionregistrationv1.ParamRef{
				Namespace: o.Rota.Namespace, Name: o.Rota.Name,
				// Params are looked up before match conditions. So without a table, Deny would refuse all writes to these kinds,
				// not only writes by members. Allow is safe: without a table no gate is open (rule R5).
				ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
			},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	return policy, binding, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// rules returns one rule per group. CONNECT is left out: it changes nothing in the API, and exec looks the same as a
// proxied read.
func rules(o Options) []admissionregistrationv1.NamedRuleWithOperations {
	var out []admissionregistrationv1.NamedRuleWithOperations
	index := map[string]int{}
	for _, r := range o.Resources {
		i, ok := index[r.Group]
		if !ok {
			i = len(out)
			index[r.Group] = i
			rule := admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{
					admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
				},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{r.Group}, APIVersions: []string{"*"}},
			}
			out = append(out, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
		}
		out[i].Resources = append(out[i].Resources, r.Resource, r.Resource+"/*")
	}
	return out
}
