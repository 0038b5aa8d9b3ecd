package ctrlrt_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

// A manager whose leader election takes the Lease that the rota waits for would wait for itself. With another Lease its
// unsharded controllers would run beside those of the stock leader.
func TestManagerRefusesTheRotasElection(t *testing.T) {
	t.Parallel()
	r, err := rota.New(&rest.Config{}, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"website-op", "another"} {
		for _, namespace := range []string{"", "operators", "elsewhere"} {
			_, err := ctrlrt.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r, ctrl.Options{
				LeaderElection: true, LeaderElectionID: id, LeaderElectionNamespace: namespace})
			if err == nil || !strings.Contains(err.Error(), "by Lease operators/website-op, and this manager has LeaderElection") {
				t.Errorf("Lease %q in namespace %q: error %v", id, namespace, err)
			}
		}
	}
	mgr, err := ctrlrt.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, r, ctrl.Options{Metrics: managerOptions().Metrics})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil })); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	err = mgr.Start(ctx)
	if err == nil || !strings.Contains(err.Error(), "AddDuty") || strings.Contains(err.Error(), "set LeaderElection") {
		t.Errorf("error %v, want one that does not advise leader election", err)
	}
}
