package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/permission"
)

// reading are an informer's verbs, labelling the labeller's additional verbs. asking is how a reconcile reads other
// members' objects.
var (
	reading   = []string{"list", "watch"}
	labelling = []string{"patch"}
)

const asking = "get"

// permissions checks the operator's permissions with SelfSubjectAccessReviews, impersonating its ServiceAccount. So
// groups and authorizers apply as they do for the operator, and members ask the same question when they start.
// Everything else is read with the caller's permissions.
func (r *run) permissions(ctx context.Context) {
	const giveAccount = "give it with --service-account NAMESPACE/NAME"
	if r.Account == (types.NamespacedName{}) && !r.Self {
		r.warn(groupPermissions, codeAccess, giveAccount,
			"the operator's permissions were not checked: its ServiceAccount is unknown")
		return
	}
	cfg, who := r.cfg, "this user"
	if !r.Self {
		if who = "ServiceAccount " + r.Account.String(); !r.accountExists(ctx, who) {
			return
		}
		cfg = rest.CopyConfig(r.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + r.Account.Namespace + ":" + r.Account.Name,
		}
	}
	needs, complete := r.needs(ctx)
	denied, err := permission.Denied(ctx, cfg, nil, needs)
	if err != nil {
		cure := "run it again"
		if apierrors.IsForbidden(err) && !r.Self {
			rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
				ResourceNames: []string{r.Account.Name}, Verbs: []string{"impersonate"}}
			cure = "ask someone who may impersonate that ServiceAccount to run it: in a ClusterRole,\n" + ruleText(rule)
		}
		r.warn(groupPermissions, codeAccess, cure, "the permissions of %s could not be checked: %s", who, oneLine(err))
		return
	}
	if r.Self && len(denied) > 0 {
		who = cmp.Or(denied[0].User, who)
	}
	var watching, lives, rest []*permission.Error
	for _, d := range denied {
		switch {
		case r.watchesElection(d):
			watching = append(watching, d)
		case r.readsLive(d):
			lives = append(lives, d)
		default:
			rest = append(rest, d)
		}
	}
	for _, rule := range merged(rest) {
		r.denied(who, rule)
	}
	for _, rule := range merged(lives) {
		r.cannotGet(who, rule)
	}
	for _, rule := range merged(watching) {
		r.warn(groupPermissions, codePermission, "add this to the rules of its Role there:\n"+ruleText(rule.rule),
			"%s may not %s the Lease of leader election in namespace %s: a member that loses it only notices when it next "+
				"checks, after about a RetryPeriod (2 s)", who, strings.Join(rule.rule.Verbs, ", "), rule.namespace)
	}
	const kindless = "no kind is known, so its permissions on objects were not checked"
	switch known := len(r.Kinds)+len(r.Owned) > 0; {
	case len(denied) > 0 || !complete:
	case len(needs) == 0:
		r.warn(groupPermissions, codeAccess, "give them with --kind", "%s: %s", who, kindless)
	case !known:
		r.good(groupPermissions, codePermission, "%s has the %d permissions that a member needs for the rota's own "+
			"objects; %s", who, len(needs), kindless)
	default:
		r.good(groupPermissions, codePermission, "%s has the %d permissions that a member needs", who, len(needs))
	}
}

func (r *run) accountExists(ctx context.Context, who string) bool {
	_, err := r.client.CoreV1().ServiceAccounts(r.Account.Namespace).Get(ctx, r.Account.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.warn(groupPermissions, codeAccess, "create it first, with its Roles", "there is no %s yet", who)
		return false
	}
	return true // without permission to read it, continue
}

// needs returns the permissions of a member. It reports kinds that the API server does not serve.
func (r *run) needs(ctx context.Context) (needs []permission.Error, complete bool) {
	if r.Rota.Name != "" {
		needs = permission.Needs(r.Rota.Namespace, permission.Rules(r.Rota.Name))
	}
	for _, lease := range r.Elections {
		if r.Rota.Name == "" || lease.Namespace != r.Rota.Namespace { // otherwise Rules includes them
			needs = append(needs, permission.Needs(lease.Namespace, permission.ElectionRules(lease.Name))...)
		}
	}
	complete = true
	for _, kind := range slices.Concat(r.Kinds, r.Owned) {
		mapping, err := r.mapper.RESTMapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			complete = false
			if r.found(groupCoverage, view.KindNotServed) {
				continue // reported as a problem from the members' reports
			}
			r.fail(groupPermissions, view.KindNotServed, "install its CustomResourceDefinition, or correct the name: it is "+
				"Kind.group, "+
				"as in Deployment.apps", "the API server does not serve the kind %s", kind)
			continue
		case err != nil:
			complete = false
			r.unknown(groupPermissions, "the resource of kind "+kind.String(), err)
			continue
		}
		verbs := slices.Clone(reading)
		if !r.dispatches {
			verbs = append(verbs, asking)
			r.live = append(r.live, mapping.Resource.GroupResource())
		}
		if r.labels(kind) {
			verbs = append(verbs, labelling...)
		}
		rule := []rbacv1.PolicyRule{{
			APIGroups: []string{mapping.Resource.Group}, Resources: []string{mapping.Resource.Resource}, Verbs: verbs,
		}}
		namespaces := r.Namespaces
		if len(namespaces) == 0 || mapping.Scope.Name() == meta.RESTScopeNameRoot {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			needs = append(needs, permission.Needs(namespace, rule)...)
		}
	}
	return needs, complete && ctx.Err() == nil
}

// labels reports whether members write labels on objects of the kind.
func (r *run) labels(kind schema.GroupKind) bool {
	switch {
	case r.Delivery == sharding.SlotLabel || r.Label:
		return true
	case r.Delivery == sharding.ShardSelector:
		return slices.Contains(r.Owned, kind)
	default:
		return false
	}
}

// missing is a rule that is missing in a namespace, or in the cluster if it is empty.
type missing struct {
	namespace string
	rule      rbacv1.PolicyRule
}

// watchesElection reports whether a permission is only needed to notice at once that another process took leader
// election's Lease.
func (r *run) watchesElection(d *permission.Error) bool {
	return d.Resource == "leases" && (d.Verb == "list" || d.Verb == "watch") &&
		slices.Contains(r.Elections, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
}

// readsLive reports whether a permission is only needed to read other members' objects.
func (r *run) readsLive(d *permission.Error) bool {
	return d.Verb == asking && d.Name == "" &&
		slices.Contains(r.live, schema.GroupResource{Group: d.Group, Resource: d.Resource})
}

// cannotGet warns about a permission that some reconciles need. Programs that never read other members' objects do not
// need it, but the check cannot know.
func (r *run) cannotGet(who string, m missing) {
	where, role := "in the cluster", "its ClusterRole"
	if m.namespace != "" {
		where, role = "in namespace "+m.namespace, "its Role there"
	}
	r.warn(groupPermissions, codePermission, "add this to the rules of "+role+":\n"+ruleText(m.rule),
		"%s may not get %s %s: Get of another member's object goes to the API server, so with controller-runtime "+
			"reconciles that read one fail. Only programs that never do so work without it", who,
		schema.GroupResource{Group: m.rule.APIGroups[0], Resource: m.rule.Resources[0]}, where)
}

// merged combines the verbs for the same resources into one rule.
func merged(denied []*permission.Error) []missing {
	var out []missing
	for _, d := range denied {
		rule := d.Rule()
		i := slices.IndexFunc(out, func(m missing) bool {
			return m.namespace == d.Namespace && m.rule.APIGroups[0] == d.Group && m.rule.Resources[0] == d.Resource &&
				slices.Equal(m.rule.ResourceNames, rule.ResourceNames)
		})
		if i < 0 {
			out = append(out, missing{d.Namespace, rule})
		} else if !slices.Contains(out[i].rule.Verbs, d.Verb) {
			out[i].rule.Verbs = append(out[i].rule.Verbs, d.Verb)
		}
	}
	return out
}

func (r *run) denied(who string, m missing) {
	resource := schema.GroupResource{Group: m.rule.APIGroups[0], Resource: m.rule.Resources[0]}
	where, cure := "in the cluster", "add this to the rules of its ClusterRole"
	if m.namespace != "" {
		where, cure = "in namespace "+m.namespace, "add this to the rules of its Role there"
	} else if len(r.Namespaces) == 0 {
		cure += " (if informers are limited to namespaces, give --in-namespaces)"
	}
	r.fail(groupPermissions, codePermission, cure+":\n"+ruleText(m.rule), "%s may not %s %s %s", who,
		strings.Join(m.rule.Verbs, ", "), resource, where)
}

// ruleText formats a rule as in a Role.
func ruleText(rule rbacv1.PolicyRule) string {
	quoted := func(words []string) string {
		var out []string
		for _, w := range words {
			out = append(out, fmt.Sprintf("%q", w))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	lines := []string{"- apiGroups: " + quoted(rule.APIGroups), "  resources: " + quoted(rule.Resources)}
	if len(rule.ResourceNames) > 0 {
		lines = append(lines, "  resourceNames: "+quoted(rule.ResourceNames))
	}
	return strings.Join(append(lines, "  verbs: "+quoted(rule.Verbs)), "\n")
}

// accountTries limits how many Pods are read: members need not be Pods, and there may be many.
const accountTries = 10

// accountOf finds the members' ServiceAccount from their Pods.
func (r *run) accountOf(ctx context.Context, pods []string) {
	if r.Self || r.Account != (types.NamespacedName{}) {
		return
	}
	for _, name := range pods[:min(len(pods), accountTries)] {
		pod, err := r.client.CoreV1().Pods(r.Rota.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			r.Account = types.NamespacedName{Namespace: pod.Namespace, Name: accountName(pod)}
			return
		}
		if !apierrors.IsNotFound(err) { // the others could not be read either
			return
		}
	}
}

func accountName(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return "default"
	}
	return pod.Spec.ServiceAccountName
}
