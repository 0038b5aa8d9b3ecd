package fence

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
)

const (
	// Annotation takes the fence down at once if it has the value Off on the rota's ConfigMap. Members keep it when they
	// change the table.
	Annotation = names.Prefix + "/fence"
	// Off is the value of Annotation that takes the fence down. Other values have no effect.
	Off = "off"

	// podExtra is the prefix of the extra fields in a request's user info that identify the Pod its token is bound to.
	podExtra = "authentication.kubernetes.io/"
)

// conditions select the requests that the policy judges. They need no quoting: names of namespaces and ServiceAccounts
// contain no characters that are special in CEL.
func conditions(o Options) []admissionregistrationv1.MatchCondition {
	out := []admissionregistrationv1.MatchCondition{{
		Name: "written-by-the-controller",
		Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'",
			o.ServiceAccount.Namespace, o.ServiceAccount.Name),
	}}
	if slices.ContainsFunc(o.Resources, rotaKeepsItsOwn) {
		// A member renews its Lease and writes the table before the table lists it.
		out = append(out, admissionregistrationv1.MatchCondition{
			Name: "not-the-rota-itself",
			Expression: fmt.Sprintf("!(request.resource.resource in ['configmaps', 'leases']"+
				" && request.?namespace.orValue('') == '%[1]s'"+
				" && (request.?name.orValue('') == '%[2]s' || request.?name.orValue('').startsWith('%[3]s')))",
				o.Rota.Namespace, o.Rota.Name, names.Lease(o.Rota.Name, "")),
		})
	}
	return out
}

func rotaKeepsItsOwn(r schema.GroupResource) bool {
	return r == schema.GroupResource{Resource: "configmaps"} ||
		r == schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// variables never fail: a malformed table or token is refused with one of the messages below, not with a CEL error.
func variables() []admissionregistrationv1.Variable {
	extra := func(key string) string {
		return fmt.Sprintf("request.userInfo.?extra[?'%s'][?0].orValue('')", podExtra+key)
	}
	return []admissionregistrationv1.Variable{
		{Name: "podUID", Expression: extra("pod-uid")},
		{Name: "podName", Expression: extra("pod-name")},
		{Name: "members", Expression: fmt.Sprintf("params.?data[?'%s'].orValue('').split(' ')", table.FieldPodUIDs)},
		{Name: "epoch", Expression: "params.?data[?'epoch'].orValue('?')"},
		{Name: "off", Expression: fmt.Sprintf("params.metadata.?annotations[?'%s'].orValue('') == '%s'", Annotation, Off)},
	}
}

func validations(o Options) []admissionregistrationv1.Validation {
	off := fmt.Sprintf("To take the fence down: kubectl annotate configmap -n %s %s %s=%s",
		o.Rota.Namespace, o.Rota.Name, Annotation, Off)
	return []admissionregistrationv1.Validation{
		{
			Expression: "variables.off || variables.podUID != ''",
			Message: fmt.Sprintf("the fence of rota %s admits writes of ServiceAccount %s from the Pods of members only, "+
				"and this token names no Pod. Use the token that the kubelet mounts into the Pod, or another user. %s",
				o.Rota, o.ServiceAccount, off),
			Reason: ptr.To(metav1.StatusReasonForbidden),
		},
		{
			Expression: "variables.off || variables.podUID == '' || variables.podUID in variables.members",
			Message:    fmt.Sprintf("the fence of rota %s: this Pod is not a member. %s", o.Rota, off),
			MessageExpression: fmt.Sprintf("'the fence of rota %s: Pod ' + variables.podName + "+
				"' (UID ' + variables.podUID + ') is not a member in epoch ' + variables.epoch + ': "+
				"it was expelled, has left, has not joined, or does not report its POD_UID. %s'", o.Rota, off),
			Reason: ptr.To(metav1.StatusReasonForbidden),
		},
	}
}
