package split

import (
	"maps"
	"slices"
)

// Controller is what is known of one controller of kube-controller-manager.
type Controller struct {
	Name string
	// Aliases are older names, which --controllers accepts.
	Aliases []string
	// OffByDefault: "*" in --controllers does not start it.
	OffByDefault bool
	// Cloud: kube-controller-manager knows the name, but never starts it. It moved to cloud-controller-manager.
	Cloud bool
	// Gates are feature gates without which it is not started although --controllers names it. Gates that are locked to
	// on in this version are left out.
	Gates []string
}

const (
	tokenController = "serviceaccount-token-controller"
	collector       = "garbage-collector-controller"
	migrator        = "storage-version-migrator-controller"

	// Verified is the version whose sources and binary the table and the rules of this package were compared with.
	Verified = "v1.36.3"
)

// known are the controllers of version Verified, from NewControllerDescriptors in its sources.
var known = []Controller{
	{Name: "bootstrap-signer-controller", Aliases: []string{"bootstrapsigner"}, OffByDefault: true},
	{Name: "certificatesigningrequest-approving-controller", Aliases: []string{"csrapproving"}},
	{Name: "certificatesigningrequest-cleaner-controller", Aliases: []string{"csrcleaner"}},
	{Name: "certificatesigningrequest-signing-controller", Aliases: []string{"csrsigning"}},
	{Name: "cloud-node-lifecycle-controller", Aliases: []string{"cloud-node-lifecycle"}, Cloud: true},
	{Name: "clusterrole-aggregation-controller", Aliases: []string{"clusterrole-aggregation"}},
	{Name: "cronjob-controller", Aliases: []string{"cronjob"}},
	{Name: "daemonset-controller", Aliases: []string{"daemonset"}},
	{Name: "deployment-controller", Aliases: []string{"deployment"}},
	{Name: "device-taint-eviction-controller", Gates: []string{"DRADeviceTaints"}},
	{Name: "disruption-controller", Aliases: []string{"disruption"}},
	{Name: "endpoints-controller", Aliases: []string{"endpoint"}},
	{Name: "endpointslice-controller", Aliases: []string{"endpointslice"}},
	{Name: "endpointslice-mirroring-controller", Aliases: []string{"endpointslicemirroring"}},
	{Name: "ephemeral-volume-controller", Aliases: []string{"ephemeral-volume"}},
	{Name: collector, Aliases: []string{"garbagecollector"}},
	{Name: "horizontal-pod-autoscaler-controller", Aliases: []string{"horizontalpodautoscaling"}},
	{Name: "job-controller", Aliases: []string{"job"}},
	{Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", Gates: []string{"ClusterTrustBundle"}},
	{
		Name:    "legacy-serviceaccount-token-cleaner-controller",
		Aliases: []string{"legacy-service-account-token-cleaner"},
	},
	{Name: "namespace-controller", Aliases: []string{"namespace"}},
	{Name: "node-ipam-controller", Aliases: []string{"nodeipam"}},
	{Name: "node-lifecycle-controller", Aliases: []string{"nodelifecycle"}},
	{Name: "node-route-controller", Aliases: []string{"route"}, Cloud: true},
	{Name: "persistentvolume-attach-detach-controller", Aliases: []string{"attachdetach"}},
	{Name: "persistentvolume-binder-controller", Aliases: []string{"persistentvolume-binder"}},
	{Name: "persistentvolume-expander-controller", Aliases: []string{"persistentvolume-expander"}},
	{Name: "persistentvolume-protection-controller", Aliases: []string{"pv-protection"}},
	{Name: "persistentvolumeclaim-protection-controller", Aliases: []string{"pvc-protection"}},
	{Name: "pod-garbage-collector-controller", Aliases: []string{"podgc"}},
	{Name: "podcertificaterequest-cleaner-controller", Gates: []string{"PodCertificateRequest"}},
	{Name: "podgroup-protection-controller", Gates: []string{"GenericWorkload"}},
	{Name: "replicaset-controller", Aliases: []string{"replicaset"}},
	{Name: "replicationcontroller-controller", Aliases: []string{"replicationcontroller"}},
	{Name: "resourceclaim-controller", Aliases: []string{"resource-claim-controller"}},
	{Name: "resourcepoolstatusrequest-controller", Gates: []string{"DRAResourcePoolStatus"}},
	{Name: "resourcequota-controller", Aliases: []string{"resourcequota"}},
	{Name: "root-ca-certificate-publisher-controller", Aliases: []string{"root-ca-cert-publisher"}},
	{Name: "selinux-warning-controller", OffByDefault: true},
	{Name: "service-cidr-controller"},
	{Name: "service-lb-controller", Aliases: []string{"service"}, Cloud: true},
	{Name: "serviceaccount-controller", Aliases: []string{"serviceaccount"}},
	{Name: tokenController, Aliases: []string{"serviceaccount-token"}},
	{Name: "statefulset-controller", Aliases: []string{"statefulset"}},
	{Name: migrator, Aliases: []string{"svm"}, Gates: []string{"StorageVersionMigrator"}},
	{
		Name: "storageversion-garbage-collector-controller", Aliases: []string{"storage-version-gc"},
		Gates: []string{"APIServerIdentity", "StorageVersionAPI"},
	},
	{Name: "taint-eviction-controller"},
	{Name: "token-cleaner-controller", Aliases: []string{"tokencleaner"}, OffByDefault: true},
	{Name: "ttl-after-finished-controller", Aliases: []string{"ttl-after-finished"}},
	{Name: "ttl-controller", Aliases: []string{"ttl"}},
	{Name: "validatingadmissionpolicy-status-controller"},
	{Name: "volumeattributesclass-protection-controller"},
}

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

// spellings are the names under which a version may know a controller: before v1.27 today's aliases were the names.
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

// rules are what must stay together.
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

// needs names flags that controllers need beyond --controllers.
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
		"--cluster-signing-cert-file and --cluster-signing-key-file, or those of single signers",
	},
}

func isSet(flag string) func(Command) bool {
	return func(c Command) bool { return c.Value(flag) != "" }
}

// needNames are the controllers with needs, in order.
func needNames() []string { return slices.Sorted(maps.Keys(needs)) }
