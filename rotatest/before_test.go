package rotatest

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/habits"
	"github.com/rota-dev/rota/test/require"
)

// housing labels the namespace of an item, and makes another one for it.
func housing(c client.Client) habits.Reconcile {
	return func(ctx context.Context, cm *corev1.ConfigMap) (ctrl.Result, error) {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cm.Namespace + "-" + cm.Name}}
		if err := c.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, err
		}
		home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cm.Namespace}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"housed":"yes"}}}`))
		return ctrl.Result{}, c.Patch(ctx, home, patch)
	}
}

// Each run finds the namespaces as the first one did.
func TestNamespaces(t *testing.T) {
	slow(t)
	var home string
	failed := try(t, housing, func(o *Options, _ *kit) { home = o.Objects[0].GetNamespace() }, "share", "moves")
	if len(failed) > 0 {
		t.Errorf("%d runs failed: %v", len(failed), failed)
	}
	c, err := client.New(controlplane.For(t).Config(), client.Options{})
	require.NoError(t, err)
	var all corev1.NamespaceList
	require.NoError(t, c.List(t.Context(), &all))
	for i := range all.Items {
		if ns := &all.Items[i]; strings.HasPrefix(ns.Name, home+"-item") || ns.Labels["housed"] != "" {
			t.Errorf("Namespace %s is left, with the labels %v", ns.Name, ns.Labels)
		}
	}
}

// What was there before cannot be restored, so it is not written.
func TestChangedBefore(t *testing.T) {
	slow(t)
	cfg := controlplane.For(t).Config()
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	old := configMap(metav1.NamespaceDefault, "rotatest-before")
	require.NoError(t, c.Create(t.Context(), old.DeepCopy()))
	defer func() { _ = c.Delete(context.WithoutCancel(t.Context()), old) }()
	const place = "ConfigMap default/rotatest-before: "
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`))
	apply := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}`))
	for _, c := range []struct {
		says  string
		write func(context.Context, client.Client) error
	}{
		{place + "patch configmaps default/rotatest-before by the test", func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, old.DeepCopy(), patch)
		}},
		{place + "apply configmaps default/rotatest-before by the test", func(ctx context.Context, c client.Client) error {
			_ = c.Patch(ctx, old.DeepCopy(), apply, client.FieldOwner("a")) // whoever takes no notice is told, too
			return nil
		}},
		{place + "update configmaps default/rotatest-before by the test", func(ctx context.Context, c client.Client) error {
			changed := old.DeepCopy()
			changed.Data = map[string]string{"a": "b"}
			return c.Update(ctx, changed)
		}},
		{place + "delete configmaps default/ by the test", func(ctx context.Context, c client.Client) error {
			named := client.MatchingFields{"metadata.name": old.Name}
			return c.DeleteAllOf(ctx, old.DeepCopy(), client.InNamespace("default"), named)
		}},
	} {
		failed := try(t, habits.Correct, func(o *Options, _ *kit) { o.Change = c.write }, "share")
		if report := failed["reference"]; !strings.Contains(report, "these objects were there before") ||
			!strings.Contains(report, c.says) {
			t.Errorf("the report does not say %q: %s", c.says, report)
		}
	}
	spoiling := func(c client.Client) habits.Reconcile {
		return func(ctx context.Context, _ *corev1.ConfigMap) (ctrl.Result, error) {
			return ctrl.Result{}, c.Patch(ctx, old.DeepCopy(), patch)
		}
	}
	failed := try(t, spoiling, func(*Options, *kit) {}, "share")
	const says = place + "patch configmaps default/rotatest-before (in the reconcile of ConfigMap "
	if report := failed["reference"]; !strings.Contains(report, says) {
		t.Errorf("the report does not say %q: %s", says, report)
	}
	var now corev1.ConfigMap
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), &now); err != nil || len(now.Data) > 0 {
		t.Errorf("it was changed: %v, %v", now.Data, err)
	}
}

// A reconcile that fails for ever is no success, even where it has done its work.
func TestFailsForEver(t *testing.T) {
	slow(t)
	members := 0
	stubborn := func(c client.Client) habits.Reconcile {
		members++
		fails, inner := members > 2, habits.Correct(c) // the second of two members
		return func(ctx context.Context, cm *corev1.ConfigMap) (ctrl.Result, error) {
			result, err := inner(ctx, cm)
			if err == nil && fails {
				err = errors.New("no luck")
			}
			return result, err
		}
	}
	failed := try(t, stubborn, func(*Options, *kit) {}, "share")
	if report := failed["share"]; !strings.Contains(report, "reconciles go on failing") || !strings.Contains(report, "no luck") {
		t.Errorf("the report does not say so: %s", report)
	}
}

// Where nobody was killed, nothing was tested. Objects that are not compared are deleted nevertheless.
func TestNobodyIsKilled(t *testing.T) {
	slow(t)
	members := 0
	once := func(c client.Client) habits.Reconcile {
		if members++; members == 1 {
			return func(ctx context.Context, cm *corev1.ConfigMap) (ctrl.Result, error) {
				return ctrl.Result{}, client.IgnoreAlreadyExists(c.Create(ctx, habits.Child(cm, cm.Name)))
			}
		}
		return habits.Idle(c)
	}
	failed := try(t, once, func(o *Options, _ *kit) {
		o.Ignore = []schema.GroupKind{{Kind: "Secret"}}
		o.Change = nil
	}, "kill")
	if report := failed["kill"]; !strings.Contains(report, "no member was killed: in no phase") ||
		!strings.Contains(report, `no member was killed in phase "create" after: create secrets`) {
		t.Errorf("the report does not say so: %s", report)
	}
}
