package split

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// A Group is the set of controllers for one kube-controller-manager.
type Group struct {
	Name string `json:"name"`
	// Lease is the name of the Lease that the group's replicas compete for. Default: derived from the group's name.
	Lease string `json:"lease,omitempty"`
	// SecurePort is the group's --secure-port. Default: 10257 for the first group, and 10 more for each further one.
	SecurePort  int      `json:"securePort,omitempty"`
	Controllers []string `json:"controllers"`
}

//go:embed groups.yaml
var defaultGroups []byte

// DefaultGroups returns the default grouping as YAML with comments, and parsed.
func DefaultGroups() (text []byte, groups []Group) {
	groups, err := ParseGroups("the default grouping", defaultGroups)
	if err != nil {
		panic(err) // it is embedded, and a test parses it
	}
	return bytes.Clone(defaultGroups), groups
}

// ParseGroups parses a grouping. It refuses unknown fields. from names the text in errors.
func ParseGroups(from string, text []byte) ([]Group, error) {
	var file struct {
		Groups []Group `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if len(file.Groups) == 0 {
		return nil, fmt.Errorf("%s has no groups: it has to be a list of name and controllers under \"groups:\"; "+
			"--print-groups prints an example", from)
	}
	return file.Groups, nil
}

// only removes controllers that the version does not have. It is for the default grouping.
func only(groups []Group, cat Catalog) []Group {
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i].Controllers = slices.DeleteFunc(slices.Clone(groups[i].Controllers),
			func(name string) bool { return cat.resolve(name) == "" })
	}
	return groups
}

// taken are the ports of other processes of a control plane.
var taken = map[int]string{
	2379: "etcd", 2380: "etcd", 2381: "etcd", 6443: "kube-apiserver", 10248: "kubelet", 10249: "kube-proxy",
	10250: "kubelet", 10255: "kubelet", 10256: "kube-proxy", 10258: "cloud-controller-manager", 10259: "kube-scheduler",
}

// settle checks names, leases and ports of the groups, fills in missing ones, and replaces the names of controllers by
// the version's names.
func settle(groups []Group, cat Catalog, lease string, port int) ([]Group, error) {
	groups = slices.Clone(groups)
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	byName, byLease, byPort := map[string]bool{}, map[string]string{}, map[int]string{}
	member := map[string][]string{}
	for i := range groups {
		g := &groups[i]
		if g.Name == "" {
			fail("group %d has no name", i+1)
			continue
		}
		for _, problem := range validation.IsDNS1123Label(g.Name) {
			fail("group %q: the name: %s", g.Name, problem)
		}
		if byName[g.Name] {
			fail("two groups are called %s", g.Name)
		}
		byName[g.Name] = true

		if g.Lease == "" {
			g.Lease = lease + "-" + g.Name
		}
		for _, problem := range validation.IsDNS1123Subdomain(g.Lease) {
			fail("group %s: lease %q: %s", g.Name, g.Lease, problem)
		}
		if g.Lease == lease {
			fail("group %s: lease %s belongs to the undivided %s: give the group its own", g.Name, lease, program)
		}
		if other, ok := byLease[g.Lease]; ok {
			fail("groups %s and %s have the same lease %s: only one of them would work", other, g.Name, g.Lease)
		}
		byLease[g.Lease] = g.Name

		if g.SecurePort == 0 {
			g.SecurePort = port + 10*i
		}
		if g.SecurePort < 1 || g.SecurePort > 65535 {
			fail("group %s: securePort %d is not a port", g.Name, g.SecurePort)
		}
		if who, ok := taken[g.SecurePort]; ok {
			fail("group %s: securePort %d belongs to %s", g.Name, g.SecurePort, who)
		}
		if other, ok := byPort[g.SecurePort]; ok {
			fail("groups %s and %s have the same securePort %d", other, g.Name, g.SecurePort)
		}
		byPort[g.SecurePort] = g.Name

		list := make([]string, 0, len(g.Controllers))
		for _, written := range g.Controllers {
			name := cat.resolve(written)
			if name == "" {
				fail("group %s: %w", g.Name, cat.unknown(written))
				continue
			}
			member[name] = append(member[name], g.Name)
			list = append(list, name)
		}
		slices.Sort(list)
		g.Controllers = slices.Compact(list)
	}
	for _, name := range cat.names {
		switch in := member[name]; {
		case len(in) == 0:
			fail("%s is in no group", name)
		case len(in) > 1 && in[0] == in[1]:
			fail("%s is named %d times in group %s", name, len(in), in[0])
		case len(in) > 1:
			fail("%s is in %d groups: %s", name, len(in), strings.Join(in, ", "))
		}
	}
	for _, r := range rules {
		var parts []string
		groupsOf := map[string]bool{}
		for _, name := range r.together {
			if in := member[cat.resolve(name)]; len(in) > 0 {
				parts = append(parts, fmt.Sprintf("%s (group %s)", cat.resolve(name), in[0]))
				groupsOf[in[0]] = true
			}
		}
		if len(groupsOf) > 1 {
			fail("%s must be in one group: %s", strings.Join(parts, " and "), r.why)
		}
	}
	return groups, errors.Join(errs...)
}
