package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
)

// webhook is a webhook that must answer before a member can join.
type webhook struct {
	service types.NamespacedName
	text    string
}

// webhooks looks for deadlocks: the operator's Pods serve a webhook, and become ready once they have joined, for which
// they list the sharded kinds and write Leases and the table. The API server calls the webhook for these, but its
// Service leaves out Pods that are not ready. It does nothing if the operator is unknown.
func (r *run) webhooks(ctx context.Context, hooks func() ([]admission, error)) {
	if r.Account.Name == "" {
		return
	}
	by := map[types.NamespacedName][]string{}
	for _, w := range slices.Concat(r.conversions(ctx), r.admissions(ctx, hooks)) {
		if w.service.Namespace == r.Account.Namespace { // a Service only selects Pods in its namespace
			by[w.service] = append(by[w.service], w.text)
		}
	}
	var services []types.NamespacedName
	for service := range by {
		services = append(services, service)
	}
	slices.SortFunc(services, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	for _, service := range services {
		served := strings.Join(by[service], ", ")
		hides, others, err := r.hidesStarting(ctx, service)
		if err != nil {
			r.unknown(groupCluster, "whether Service "+service.String()+" of "+served+" has Pods that are not ready", err)
			continue
		}
		add, ifMembers := r.fail, ""
		if others { // the other Pods may be the members
			add, ifMembers = r.warn, ", if these are members"
		}
		if hides {
			add(groupCluster, codeWebhook, fmt.Sprintf("set publishNotReadyAddresses: true in the spec of that Service "+
				"at its source, and now: kubectl patch service -n %s %s --type merge -p "+
				`'{"spec":{"publishNotReadyAddresses":true}}'`, service.Namespace, service.Name),
				"Service %s has no publishNotReadyAddresses: when no Pod of the operator is ready, none becomes ready%s. It "+
					"serves %s. The API server waits for that webhook, a member waits for the API server before it is ready, and "+
					"the Service leaves out Pods that are not ready", service, ifMembers, served)
		}
	}
}

// hidesStarting reports whether a Service selects the operator's Pods and leaves out Pods that are not ready, and
// whether the operator has Deployments with other Pods.
func (r *run) hidesStarting(ctx context.Context, name types.NamespacedName) (hides, others bool, err error) {
	service, err := r.client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.PublishNotReadyAddresses {
		return false, false, err
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	deployments, err := r.client.AppsV1().Deployments(name.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, false, err
	}
	for _, d := range deployments.Items {
		if r.runs(d.Spec.Template.Spec) {
			selected := selector.Matches(labels.Set(d.Spec.Template.Labels))
			hides, others = hides || selected, others || !selected
		}
	}
	if hides {
		return hides, others, nil
	}
	pods, err := r.client.CoreV1().Pods(name.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return false, false, err
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return r.runs(p.Spec) }), others, nil
}

// runs reports whether a Pod runs as the operator's ServiceAccount.
func (r *run) runs(pod corev1.PodSpec) bool {
	return cmp.Or(pod.ServiceAccountName, "default") == r.Account.Name
}

// conversions returns the conversion webhooks of the sharded and the owned kinds.
func (r *run) conversions(ctx context.Context) []webhook {
	var out []webhook
	for _, kind := range slices.Concat(r.Kinds, r.Owned) {
		mapping, err := r.mapper.RESTMapping(kind)
		if err != nil {
			continue // reported by permissions
		}
		if !strings.Contains(mapping.Resource.Group, ".") {
			continue // built in: a CustomResourceDefinition's group has a dot
		}
		crd := mapping.Resource.GroupResource().String()
		service, err := r.conversion(ctx, crd)
		if err != nil {
			r.unknown(groupCluster, "whether CustomResourceDefinition "+crd+" has a conversion webhook", err)
		}
		if service.Name != "" {
			out = append(out, webhook{service, "the conversion webhook of " + crd})
		}
	}
	return out
}

// conversion returns the Service of a CustomResourceDefinition's conversion webhook, if the API server calls it: with
// one version there is nothing to convert.
func (r *run) conversion(ctx context.Context, name string) (types.NamespacedName, error) {
	var crd struct {
		Spec struct {
			Versions   []struct{ Name string }
			Conversion struct {
				Strategy string
				Webhook  struct {
					ClientConfig struct {
						Service types.NamespacedName
					}
				}
			}
		}
	}
	data, err := r.client.Discovery().RESTClient().Get().
		AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return types.NamespacedName{}, nil // a built-in kind
	}
	if err == nil {
		err = json.Unmarshal(data, &crd)
	}
	if err != nil || crd.Spec.Conversion.Strategy != "Webhook" || len(crd.Spec.Versions) < 2 {
		return types.NamespacedName{}, err
	}
	return crd.Spec.Conversion.Webhook.ClientConfig.Service, nil
}

// joining are the resources that a member writes in the rota's namespace before it is ready.
var joining = []schema.GroupResource{{Resource: "configmaps"}, {Group: "coordination.k8s.io", Resource: "leases"}}

// admission holds the common fields of validating and mutating webhooks.
type admission struct {
	of, name            string
	client              admissionv1.WebhookClientConfig
	rules               []admissionv1.RuleWithOperations
	failure             *admissionv1.FailurePolicyType
	namespaces, objects *metav1.LabelSelector
	conditions          int
	timeout             *int32 // in seconds
}

// admissions returns the webhooks without which a member cannot write what it needs to join.
func (r *run) admissions(ctx context.Context, hooks func() ([]admission, error)) []webhook {
	all, err := hooks()
	if err != nil {
		r.unknown(groupCluster, "whether admission webhooks of the operator wait for its own Pods", err)
		return nil
	}
	if len(all) == 0 {
		return nil
	}
	namespace, err := r.client.CoreV1().Namespaces().Get(ctx, r.Rota.Namespace, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.unknown(groupCluster, "the labels of namespace "+r.Rota.Namespace, err)
		return nil
	}
	in := labels.Set{corev1.LabelMetadataName: r.Rota.Namespace}
	for name, value := range namespace.Labels {
		in[name] = value
	}
	var out []webhook
	for _, a := range all {
		if what := a.holdsUp(in, labels.Set{names.LabelRota: r.Rota.Name}); len(what) > 0 {
			service := types.NamespacedName{Namespace: a.client.Service.Namespace, Name: a.client.Service.Name}
			out = append(out, webhook{service, fmt.Sprintf("webhook %s of %s, which is called for %s", a.name, a.of,
				strings.Join(what, " and "))})
		}
	}
	return out
}

func (r *run) admissionWebhooks(ctx context.Context) ([]admission, error) {
	var out []admission
	api := r.client.AdmissionregistrationV1()
	validating, err := api.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			out = append(out, admission{"ValidatingWebhookConfiguration " + c.Name, w.Name, w.ClientConfig, w.Rules,
				w.FailurePolicy, w.NamespaceSelector, w.ObjectSelector, len(w.MatchConditions),
				w.TimeoutSeconds})
		}
	}
	mutating, err := api.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			out = append(out, admission{"MutatingWebhookConfiguration " + c.Name, w.Name, w.ClientConfig, w.Rules,
				w.FailurePolicy, w.NamespaceSelector, w.ObjectSelector, len(w.MatchConditions),
				w.TimeoutSeconds})
		}
	}
	return out, nil
}

// holdsUp returns the resources that a member cannot write in a namespace with these labels while the webhook does not
// answer. Match conditions are not evaluated: a webhook with any is assumed not to match members' writes.
func (a *admission) holdsUp(namespace, object labels.Set) []string {
	ignores := a.failure != nil && *a.failure == admissionv1.Ignore
	if a.client.Service == nil || ignores || a.conditions > 0 || !selects(a.namespaces, namespace) ||
		!selects(a.objects, object) {
		return nil
	}
	var out []string
	for _, resource := range joining {
		if slices.ContainsFunc(a.rules, func(rule admissionv1.RuleWithOperations) bool { return covers(rule, resource) }) {
			out = append(out, resource.Resource)
		}
	}
	return out
}

// usualTimeout is the default timeout of admission webhooks, in seconds. A member's write may take about as long with
// the default LeaseDuration of 15 s.
const usualTimeout = 10

// slowWebhooks warns about webhooks for the rota's kinds that may take longer than a member's writes.
func (r *run) slowWebhooks(hooks func() ([]admission, error)) {
	var resources []schema.GroupResource
	for _, kind := range slices.Concat(r.Kinds, r.Owned) {
		if mapping, err := r.mapper.RESTMapping(kind); err == nil {
			resources = append(resources, mapping.Resource.GroupResource())
		}
	}
	if len(resources) == 0 {
		return
	}
	all, err := hooks()
	if err != nil {
		r.unknown(groupCluster, "how long admission webhooks may take", err)
		return
	}
	for _, a := range all {
		seconds := ptr.Deref(a.timeout, usualTimeout)
		asked := slices.ContainsFunc(a.rules, func(rule admissionv1.RuleWithOperations) bool {
			return slices.ContainsFunc(resources, func(of schema.GroupResource) bool { return covers(rule, of) })
		})
		if seconds > usualTimeout && asked {
			r.warn(groupCluster, codeSlowWebhook, fmt.Sprintf("lower its timeoutSeconds, or set LeaseDuration to %ds or more "+
				"(--rota-lease-duration with Options.BindFlags)", seconds*3/2),
				"webhook %s of %s may take %d s, and a write of a member has about 10 s with the default LeaseDuration of 15 s",
				a.name, a.of, seconds)
		}
	}
}

// selects evaluates a selector. An unset one selects everything.
func selects(by *metav1.LabelSelector, set labels.Set) bool {
	if by == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(by)
	return err == nil && selector.Matches(set)
}

// covers reports whether a rule matches creating or updating such objects.
func covers(rule admissionv1.RuleWithOperations, of schema.GroupResource) bool {
	operations := []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Create, admissionv1.Update}
	anyOf := func(have []string, want ...string) bool {
		return slices.ContainsFunc(have, func(s string) bool { return slices.Contains(want, s) })
	}
	return slices.ContainsFunc(rule.Operations, func(o admissionv1.OperationType) bool {
		return slices.Contains(operations, o)
	}) && anyOf(rule.APIGroups, "*", of.Group) && anyOf(rule.Resources, "*", "*/*", of.Resource) &&
		(rule.Scope == nil || *rule.Scope != admissionv1.ClusterScope)
}
