package store_test

import (
	"strings"
	"testing"

	"github.com/rota-dev/rota/store"
)

func TestPermissionErrorNamesTheKindOfRole(t *testing.T) {
	for namespace, want := range map[string]string{
		"ns": "jane may not list pods in namespace ns; add this to the rules of its Role there:\n",
		"":   "jane may not list pods in the cluster; add this to the rules of its ClusterRole:\n",
	} {
		err := &store.PermissionError{User: "jane", Namespace: namespace, Resource: "pods", Verb: "list"}
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
