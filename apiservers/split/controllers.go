package split

import (
	_ "embed"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// Controller describes one controller of kube-controller-manager.
type Controller struct {
	Name string `json:"name"`
	// Aliases are older names, which --controllers accepts.
	Aliases []string `json:"aliases"`
	// OffByDefault is set if "*" in --controllers does not start it.
	OffByDefault bool `json:"offByDefault"`
	// Cloud is set if kube-controller-manager knows the name but never starts it, since it moved to
	// cloud-controller-manager.
	Cloud bool `json:"cloud"`
	// Gates are feature gates without which it is not started even if --controllers names it. Gates that are locked to on
	// in this version are left out.
	Gates []string `json:"gates"`
}

const (
	tokenController = "serviceaccount-token-controller"
	collector       = "garbage-collector-controller"
	migrator        = "storage-version-migrator-controller"

	// Verified is the version whose sources and binary the table and the rules of this package were verified against.
	Verified = "v1.36.3"
)

//go:embed controllers.yaml
var controllersYAML []byte

// known are the controllers of version Verified.
var known = func() (list []Controller) {
	if err := yaml.UnmarshalStrict(controllersYAML, &list); err != nil {
		panic(err) // it is embedded
	}
	return list
}()

// Known returns the controllers of version Verified, by name.
func Known() []Controller { return slices.Clone(known) }

// knownNames maps each name and alias of version Verified to the controller's name.
var knownNames = func() map[string]string {
	m := map[string]string{}
	for _, c := range known {
		m[c.Name] = c.Name
		for _, a := range c.Aliases {
			m[a] = c.Name
		}
	}
	return m
}()

// spellings are the names that a version may have for a controller: before v1.27 today's aliases were the names.
func spellings(name string) []string {
	canonical, ok := knownNames[name]
	if !ok {
		return []string{name}
	}
	i := slices.IndexFunc(known, func(c Controller) bool { return c.Name == canonical })
	return append([]string{name, canonical}, known[i].Aliases...)
}

// A rule keeps controllers in one group.
type rule struct {
	together []string
	why      string
}

// rules are the controllers that must stay together.
var rules = []rule{{
	together: []string{collector, migrator},
	why: "the migrator looks objects up in the collector's graph, which exists only in the collector's process; " +
		"without it the migrator crashes",
}}

// A need is a flag without which a controller does nothing.
type need struct {
	met  func(Command) bool
	flag string
}

// needs are flags that controllers need in addition to --controllers.
var needs = map[string]need{
	tokenController: {isSet("service-account-private-key-file"), "--service-account-private-key-file"},
	"node-ipam-controller": {
		func(c Command) bool { return c.Bool("allocate-node-cidrs", false) },
		"--allocate-node-cidrs (with --cluster-cidr)",
	},
	collector: {func(c Command) bool { return c.Bool("enable-garbage-collector", true) }, "--enable-garbage-collector"},
	"certificatesigningrequest-signing-controller": {
		func(c Command) bool {
			for _, signer := range []string{
				"", "kubelet-serving-", "kubelet-client-", "kube-apiserver-client-", "legacy-unknown-",
			} {
				if isSet("cluster-signing-" + signer + "cert-file")(c) {
					return true
				}
			}
			return false
		},
		"--cluster-signing-cert-file and --cluster-signing-key-file, or the flags of single signers",
	},
}

func isSet(flag string) func(Command) bool {
	return func(c Command) bool { return c.Value(flag) != "" }
}

// needNames are the controllers with needs, in order.
func needNames() []string { return slices.Sorted(maps.Keys(needs)) }
