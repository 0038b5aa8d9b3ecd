package adopt

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/permission"
)

// rule is a rule of a Role or ClusterRole, or of a marker +kubebuilder:rbac.
type rule struct {
	groups, resources, names, verbs []string
	at                              place
}

// allows reports whether a rule allows a request. A rule for certain names allows it for that name alone.
func (r rule) allows(group, resource, verb, name string) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, want) || slices.Contains(list, "*")
	}
	return has(r.groups, group) && has(r.resources, resource) && has(r.verbs, verb) &&
		(len(r.names) == 0 || name != "" && slices.Contains(r.names, name))
}

// roles compares what the operator is granted with what a member needs. The roles count that a binding gives to a
// ServiceAccount of the operator's Deployments. Where no Deployment is known, those count that are bound to any; where
// nothing is bound, all.
func (s *source) roles(docs []*document, own []*workload) {
	accounts := map[string]bool{}
	for _, w := range own {
		accounts[w.account()] = true
	}
	bindings := false
	bound := map[string]bool{} // by kind and name
	var binding *document
	for _, d := range docs {
		k := scalar(d.Node, "kind")
		if k != "RoleBinding" && k != "ClusterRoleBinding" {
			continue
		}
		for _, subject := range items(value(d.Node, "subjects")) {
			if scalar(subject, "kind") != "ServiceAccount" {
				continue
			}
			bindings = true
			if len(accounts) > 0 && !accounts[scalar(subject, "name")] {
				continue
			}
			bound[rbacRole(scalar(d.Node, "roleRef", "kind"), scalar(d.Node, "roleRef", "name"))] = true
			if k == "RoleBinding" && filepath.Base(d.file) == "leader_election_role_binding.yaml" {
				binding = d
			}
		}
	}
	var rules []rule
	var last place
	for _, d := range docs {
		k := scalar(d.Node, "kind")
		if k != "Role" && k != "ClusterRole" || bindings && !bound[rbacRole(k, scalar(d.Node, "metadata", "name"))] {
			continue
		}
		last = place{d.rel, d.Node.Line}
		for _, n := range items(value(d.Node, "rules")) {
			rules = append(rules, rule{texts(value(n, "apiGroups")), texts(value(n, "resources")),
				texts(value(n, "resourceNames")),
				texts(value(n, "verbs")), place{d.rel, n.Line}})
		}
	}
	if len(rules) == 0 {
		s.found(Look, codeNoManifest, place{}, "no Role of the operator was found in YAML that can be read")
		return
	}
	s.lacking(rules, last, binding)
	s.getVerbs(append(rules, s.markers()...))
}

func rbacRole(kind, name string) string { return kind + "/" + name }

// lacking says which rules for the rota's own objects are missing.
func (s *source) lacking(rules []rule, at place, binding *document) {
	var missing []string
	for _, need := range permission.Needs("", permission.Rules(s.name)) {
		allowed := func(r rule) bool { return r.allows(need.Group, need.Resource, need.Verb, need.Name) }
		if !slices.ContainsFunc(rules, allowed) {
			what := need.Verb + " " + need.Resource
			if need.Group != "" {
				what += "." + need.Group
			}
			missing = append(missing, what)
		}
	}
	if len(missing) == 0 {
		s.found(Fine, codePermission, at, "the roles have what a member needs for the rota's own objects")
		return
	}
	f := s.found(Must, codePermission, at, "no role of the operator allows: %s", strings.Join(missing, ", "))
	f.Instead = fmt.Sprintf("a Role and RoleBinding in the operator's namespace, as "+
		"examples/website/config/rbac/rota.yaml "+
		"has them: ConfigMap %s, all Leases, and to create ConfigMaps and Events of events.k8s.io", s.name)
	f.write(func() bool {
		f.Kept = s.edits.addRole(s.name, binding)
		return f.Kept == ""
	})
}

var marker = regexp.MustCompile(`\+kubebuilder:rbac:(\S+)`)

// markers reads the rules that controller-gen makes of comments: config/rbac/role.yaml may not be up to date.
func (s *source) markers() []rule {
	var out []rule
	for file := range s.module.inFile {
		for _, group := range file.Comments {
			for _, c := range group.List {
				m := marker.FindStringSubmatch(c.Text)
				if m == nil {
					continue
				}
				r := rule{at: s.module.at(c)}
				for part := range strings.SplitSeq(m[1], ",") {
					key, list, _ := strings.Cut(part, "=")
					values := strings.Split(strings.Trim(list, `"`), ";")
					switch key {
					case "groups":
						r.groups = values
					case "resources":
						r.resources = values
					case "verbs":
						r.verbs = values
					}
				}
				out = append(out, r)
			}
		}
	}
	return out
}

// getVerbs says which sharded kinds may be listed, and not got.
func (s *source) getVerbs(rules []rule) {
	for _, c := range s.controllers {
		if !c.canShard() {
			continue
		}
		for _, k := range append([]kind{c.kind}, c.owns...) {
			if !k.known() {
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: k.name})
			var listed *rule
			got := false
			for i, r := range rules {
				if slices.Contains(r.resources, resource.Resource) || slices.Contains(r.resources, "*") {
					got = got || slices.Contains(r.verbs, "get") || slices.Contains(r.verbs, "*")
					if slices.Contains(r.verbs, "list") {
						listed = &rules[i]
					}
				}
			}
			if listed != nil && !got {
				s.found(Must, codeGet, listed.at, "%s may be listed, and not got", resource.Resource)
			}
		}
	}
}
