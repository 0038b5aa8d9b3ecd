package adopt

import (
	"path"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// workload is a Deployment or StatefulSet that may run the operator, and the container of its manager.
type workload struct {
	*document
	pod, container *yaml.Node
}

// account is the Pods' ServiceAccount.
func (w *workload) account() string {
	for _, key := range []string{"serviceAccountName", "serviceAccount"} {
		if name := scalar(w.pod, key); name != "" {
			return name
		}
	}
	return "default"
}

var (
	likeManager = regexp.MustCompile(`manager|operator|controller`)
	ofManager   = regexp.MustCompile(`(^|/)(manager|operator|controller|charts?|deploy)(/|$)`)
)

// managerLike reports whether a workload looks by its names or its path as if it ran the operator.
func (w *workload) managerLike() bool {
	return likeManager.MatchString(scalar(w.Node, "metadata", "name")) ||
		likeManager.MatchString(scalar(w.container, "name")) || ofManager.MatchString(path.Dir(w.rel))
}

// ownDeployments returns the workloads that surely run the operator. The others, such as manifests of what the operator
// deploys, are reported alone.
func (s *source) ownDeployments(docs []*document) (own []*workload) {
	var all []*workload
	for _, d := range docs {
		if kind := scalar(d.Node, "kind"); kind != "Deployment" && kind != "StatefulSet" {
			continue
		}
		pod := get(d.Node, "spec", "template", "spec")
		if c := managerOf(items(value(pod, "containers"))); c != nil {
			all = append(all, &workload{d, pod, c})
		}
	}
	accounts := s.accounts(docs)
	used := map[string]bool{}
	for _, w := range all {
		// Every Pod without a ServiceAccount has the default one.
		if name := w.account(); accounts[name] && (name != "default" || w.managerLike()) {
			own = append(own, w)
			used[name] = true
		}
	}
	if len(used) > 1 {
		own = slices.DeleteFunc(own, func(w *workload) bool { return !w.managerLike() })
	}
	if len(all) == 1 && len(own) == 0 && all[0].managerLike() {
		own = all
	}
	for _, w := range all {
		if !slices.Contains(own, w) {
			s.found(Look, codeOther, place{w.rel, w.Line}, "%s %s, with the ServiceAccount %s, is not surely the operator's",
				scalar(w.Node, "kind"), scalar(w.Node, "metadata", "name"), w.account())
		}
	}
	return own
}

// accounts returns the ServiceAccounts that have roles of the operator: those that allow to list or watch what its
// controllers are for, or to lead.
func (s *source) accounts(docs []*document) map[string]bool {
	kinds := []string{"*"}
	for _, c := range s.controllers {
		for _, k := range append([]kind{c.kind}, c.owns...) {
			if k.known() {
				resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: k.name})
				kinds = append(kinds, resource.Resource)
			}
		}
	}
	operators := map[string]bool{"cluster-admin": true}
	for _, d := range docs {
		if k := scalar(d.Node, "kind"); k != "Role" && k != "ClusterRole" {
			continue
		}
		for _, r := range items(value(d.Node, "rules")) {
			leads := grants(r, []string{"leases"}, "create", "update", "*")
			if leads || grants(r, kinds, "list", "watch", "*") || len(kinds) == 1 {
				operators[scalar(d.Node, "metadata", "name")] = true
			}
		}
	}
	out := map[string]bool{}
	for _, d := range docs {
		k := scalar(d.Node, "kind")
		if k != "RoleBinding" && k != "ClusterRoleBinding" || !operators[scalar(d.Node, "roleRef", "name")] {
			continue
		}
		for _, subject := range items(value(d.Node, "subjects")) {
			if scalar(subject, "kind") == "ServiceAccount" {
				out[scalar(subject, "name")] = true
			}
		}
	}
	return out
}

// grants reports whether a rule of a role allows one of these verbs on one of these resources.
func grants(rule *yaml.Node, resources []string, verbs ...string) bool {
	in := func(key string, want []string) bool {
		return slices.ContainsFunc(texts(value(rule, key)), func(x string) bool { return slices.Contains(want, x) })
	}
	return in("resources", resources) && in("verbs", verbs)
}
