package ctrlrt_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

// A manager whose leader election takes the Lease that the rota waits for would wait for itself.
func TestManagerRefusesTheRotasElection(t *testing.T) {
	t.Parallel()
	r, err := rota.New(&rest.Config{}, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op"})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, refused := range map[string]bool{"": true, "operators": true, "elsewhere": false} {
		_, err := ctrlrt.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r, ctrl.Options{
			LeaderElection: true, LeaderElectionID: "website-op", LeaderElectionNamespace: namespace})
		if got := err != nil && strings.Contains(err.Error(), "would both hold Lease operators/website-op"); got != refused {
			t.Errorf("namespace %q: error %v, want refused: %t", namespace, err, refused)
		}
	}
}
