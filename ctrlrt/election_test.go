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

// Members without the Lease's name would work beside a stock leader. The error names the line to add.
func TestManagerRefusesElectionBesideAStockLeader(t *testing.T) {
	t.Parallel()
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	options := managerOptions()
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, "website-op", "operators"
	newManager := func(o rota.Options) error {
		o.Name, o.Namespace = "website", "operators"
		r, err := rota.New(cfg, o)
		noError(t, err)
		_, err = ctrlrt.NewManager(cfg, r, options)
		return err
	}
	wantError(t, newManager(rota.Options{}), `LeaderElectionID: "website-op", LeaderElectionNamespace: "operators"`,
		"NoStockReplicas: true")
	if err := newManager(rota.Options{NoStockReplicas: true}); err != nil {
		t.Error(err)
	}
	_, err := rota.New(cfg, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op",
		NoStockReplicas: true})
	wantError(t, err, "LeaderElectionID", "NoStockReplicas", "leave one out")
}

// A manager whose leader election takes the Lease that the rota waits for would wait for itself. With another Lease its
// unsharded controllers would run beside those of the stock leader.
func TestManagerRefusesTheRotasElection(t *testing.T) {
	t.Parallel()
	r, err := rota.New(&rest.Config{}, rota.Options{Name: "website", Namespace: "operators", LeaderElectionID: "website-op"})
	noError(t, err)
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
	noError(t, err)
	noError(t, mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil })))
	ctx, end := context.WithCancel(t.Context())
	end()
	err = mgr.Start(ctx)
	if err == nil || !strings.Contains(err.Error(), "AddDuty") || strings.Contains(err.Error(), "LeaderElection: true") {
		t.Errorf("error %v, want one that does not advise leader election", err)
	}
}
