package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/rota-dev/rota/internal/cli/serving"
)

// Tried are the minor versions of Kubernetes on which `make check WHAT=kubernetes` ran, the oldest first.
// docs/versions.md has the results.
var Tried = []string{"1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"}

// tried warns about an API server of an untested version.
func (r *run) tried(gitVersion string) {
	now, err := version.ParseGeneric(gitVersion)
	if err != nil {
		return // a custom build; its features are checked below
	}
	minor := fmt.Sprintf("%d.%d", now.Major(), now.Minor())
	if !slices.Contains(Tried, minor) {
		r.warn(groupCluster, codeUntried, "try it on a test cluster first, or use one of these", "Rota has not "+
			"been tried on Kubernetes %s: its tests run on %s", minor, strings.Join(Tried, ", "))
	}
}

// unasked reports before an installation what could not be checked. Later it does not matter for the rota.
func (r *run) unasked(what string, err error) {
	if r.Pre {
		r.unknown(groupCluster, what, err)
	}
}

// features reports missing API server features that make something more expensive.
func (r *run) features(ctx context.Context) {
	core := r.client.CoreV1().RESTClient()
	gates, err := serving.ReadGates(ctx, core)
	switch {
	case err != nil: // few users may read metrics
		r.unasked("whether the API server answers lists from its cache", err)
	case gates.Off(serving.GateConsistentLists):
		r.warn(groupCluster, codeLacks, "turn that feature gate on: Kubernetes has it on by default since 1.31",
			"the API server reads lists of members from etcd, because its feature gate %s is off: members that start, and "+
				"slots that move, are more expensive for it and etcd", serving.GateConsistentLists)
	case gates.FirstPageOnly():
		r.good(groupCluster, codeLacks, "the API server reads lists from etcd after their first page (feature gate %s): "+
			"only kinds with more than a page of objects, 500 to 5,000, cost more", serving.GatePages)
	}
	lists, err := serving.WatchList(ctx, core, r.Rota.Namespace)
	switch {
	case err != nil:
		r.unasked("whether the API server has WatchList", err)
	case !lists:
		r.good(groupCluster, codeLacks, "the API server has WatchList off: informers of kinds that are not sharded fall "+
			"back to a list; members' informers always start with a list")
	}
}
