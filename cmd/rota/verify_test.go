package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// R14: `rota verify` is content with a rota in which all is well, and names what is wrong with one in which it is not.
func TestVerify(t *testing.T) {
	t.Parallel()
	plane, namespace := controlplane.For(t), controlplane.Namespace(t)
	ctrl.SetLogger(logr.Discard())
	admin, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	for i := range 30 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}}
		require.NoError(t, admin.Create(t.Context(), cm))
	}
	r, err := rota.New(plane.Config(), rota.Options{
		Name: "test", Namespace: namespace, Identity: rota.Identity{Pod: "a"}, LeaseDuration: 3 * time.Second, RetryPeriod: 300 * time.Millisecond,
	})
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(plane.Config(), r, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	require.NoError(t, err)
	err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ServiceAccount{}).Complete(reconcile.Func(
		func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	if err == nil {
		err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() { cancel(); <-done }()

	verify := func() (string, error) {
		var out bytes.Buffer
		cmd := newCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields("verify test --every 2s -n " + namespace + " --kubeconfig " + plane.Kubeconfig()))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	_, err = verify()
	require.ErrorSays(t, err, "there is no ConfigMap of that name")
	// Other namespaces have such objects, too. The member's cache leaves them out.
	only := "compared only the objects of ConfigMap, Secret, ServiceAccount that the members' informers select: in namespace " + namespace + "\n"
	deadline := time.After(2 * time.Minute)
	for {
		out, err := verify()
		if err == nil && strings.Contains(out, "1 members") && strings.Contains(out, "objects of 3 kinds") && strings.Contains(out, only) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("all is well, but: %v\n%s", err, out)
		case <-time.After(500 * time.Millisecond):
		}
	}
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetArgs(strings.Fields("status test -o wide -n " + namespace + " --kubeconfig " + plane.Kubeconfig()))
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "s ago") || !strings.Contains(out.String(), "  open  ") ||
		strings.Contains(out.String(), "differences") {
		t.Errorf("status: %v\n%s", err, &out)
	}
	// `rota check` is content with a member that works, and would like a fence.
	code, text, errOut := runCommand(t.Context(), strings.Fields("rota check test --as admin --as-group system:masters -n "+
		namespace+" --in-namespaces "+namespace+" --kubeconfig "+plane.Kubeconfig())...)
	if code != exitGood || strings.Count(text, "‼ ") != 1 || !strings.Contains(text, "there is no fence") ||
		!strings.Contains(text, "√ this user has the 21 permissions") || !strings.Contains(text, "; "+r.ID()+" compares") {
		t.Errorf("exit code %d:\n%s%s", code, text, errOut)
	}
	// The member says that it holds an object less than there are.
	reports, err := coverage.NewReports(plane.Config(), namespace, "test")
	require.NoError(t, err)
	all, err := reports.Read(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	lease := &coordinationv1.Lease{}
	require.NoError(t, admin.Get(t.Context(),
		types.NamespacedName{Namespace: namespace, Name: names.Lease("test", r.ID())}, lease))
	for kind, digests := range all[0].Digests {
		for n, d := range digests {
			if kind.Kind == "ConfigMap" && d.Objects == 1 {
				delete(digests, n)
				break
			}
		}
	}
	// It says so again and again: its own report comes in between, and may be the one that is looked at.
	lying, honest := context.WithCancel(t.Context())
	lies, said := make(chan error, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for all[0].Serial += 1000; lying.Err() == nil; all[0].Serial++ {
			if err := reports.Publish(t.Context(), all[0], lease.UID); err != nil {
				lies <- err
				return
			}
			select {
			case said <- struct{}{}:
			case <-tick.C:
			}
		}
		lies <- nil
	}()
	var found string
	for range 5 {
		<-said
		if found, err = verify(); err != nil {
			break
		}
	}
	honest()
	require.NoError(t, <-lies)
	if err == nil || !strings.Contains(found, "of kind ConfigMap there are 1 objects, and member "+r.ID()+" holds 0") || !strings.HasSuffix(found, only) || strings.Count(found, "\n") != 2 {
		t.Errorf("an object is held by nobody, but: %v\n%s", err, found)
	}
}
