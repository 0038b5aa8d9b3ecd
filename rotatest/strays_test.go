package rotatest

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/habits"
	"github.com/rota-dev/rota/test/require"
)

// What is created by a client whose writes are not recorded is not compared. So the run fails, and deletes it.
func TestStrays(t *testing.T) {
	other, err := client.New(controlplane.For(t).Config(), client.Options{})
	require.NoError(t, err)
	// own makes a child with a client of main.
	own := func(c client.Client) habits.Reconcile {
		return func(ctx context.Context, cm *corev1.ConfigMap) (ctrl.Result, error) {
			if cm.Annotations["done"] != "" {
				return ctrl.Result{}, nil
			}
			if err := other.Create(ctx, habits.Child(cm, "")); err != nil {
				return ctrl.Result{}, err
			}
			return ctrl.Result{}, habits.Note(ctx, c, cm, "done", "yes")
		}
	}
	process, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	for i, c := range []struct {
		name string
		of   habits.Operator
		how  func(o *Options)
		says []string
	}{
		{"the operator's own client", own, func(o *Options) { o.Change = nil }, []string{
			"these objects were created by a client that rotatest does not know", "Secret ", "/item-", " by " + process}},
		{"another client in Change, in a namespace of the run, with a finalizer", habits.Correct, func(o *Options) {
			name := o.Objects[0].GetNamespace() + "-more"
			o.Change = func(ctx context.Context, c client.Client) error {
				if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					return err
				}
				cm := configMap(name, "a")
				cm.Finalizers = []string{"rotatest.example.com/stays"}
				return other.Create(ctx, cm)
			}
		}, []string{"ConfigMap ", "-more/a by "}},
		{"of a kind that is ignored", habits.Correct, func(o *Options) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.Objects[0].GetNamespace(), Name: "a"}}
			o.Ignore = []schema.GroupKind{{Kind: "ServiceAccount"}}
			o.Change = func(ctx context.Context, _ client.Client) error { return other.Create(ctx, account.DeepCopy()) }
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				slow(t)
			}
			failed := try(t, c.of, func(o *Options, _ *kit) { c.how(o) }, "none")
			if c.says == nil && failed["reference"] != "" {
				t.Errorf("it fails: %s", failed["reference"])
			}
			for _, text := range c.says {
				if !strings.Contains(failed["reference"], text) {
					t.Errorf("the report does not say %q: %s", text, failed["reference"])
				}
			}
		})
	}
	var all corev1.ConfigMapList
	require.NoError(t, other.List(t.Context(), &all))
	for i := range all.Items {
		if strings.HasSuffix(all.Items[i].Namespace, "-more") {
			t.Errorf("%s/%s is left behind", all.Items[i].Namespace, all.Items[i].Name)
		}
	}
}

// Where controllers run, they create objects, too: only what this process wrote is a stray.
func TestExpectedStrays(t *testing.T) {
	process, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	for _, c := range []struct {
		controllers bool
		managers    string
		want        bool
	}{
		{false, "kube-apiserver", true},
		{false, "kubectl", false},
		{false, process, false},
		{false, "", false},
		{true, "kube-controller-manager", true},
		{true, "kubectl", true},
		{true, "kube-controller-manager " + process, false},
	} {
		if got := (&kit{controllers: c.controllers}).expected(strings.Fields(c.managers)); got != c.want {
			t.Errorf("controllers %t, managers %q: expected %t", c.controllers, c.managers, got)
		}
	}
}
