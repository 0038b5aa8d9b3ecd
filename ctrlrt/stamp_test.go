package ctrlrt_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Every write of the manager's client leaves an object with the labels by which it is delivered, without a second
// write. The managers are not started, so that nobody else labels.
func TestClientLabelsWhatItWrites(t *testing.T) {
	for _, test := range []struct {
		o             rota.Options
		parent, child string // labels
	}{
		{rota.Options{}, "", ""},
		{rota.Options{Delivery: sharding.SlotLabel}, sharding.HashLabel(slot.KeyName, secretKind),
			sharding.OwnerLabel(slot.KeyName, configMapKind)},
		{
			rota.Options{Delivery: sharding.SlotLabel, Key: slot.KeyNamespace},
			sharding.HashLabel(slot.KeyNamespace, secretKind), sharding.OwnerLabel(slot.KeyNamespace, configMapKind),
		},
		{rota.Options{Delivery: sharding.ShardSelector}, "", sharding.OwnerLabel(slot.KeyUID, configMapKind)},
	} {
		t.Run(test.o.Delivery.String()+test.o.Key.String(),
			func(t *testing.T) { testStamps(t, test.o, test.parent, test.child) })
	}
}

func testStamps(t *testing.T, o rota.Options, parentLabel, childLabel string) {
	cfg, admin, ctx := controlplane.For(t).Config(), adminClient(t), t.Context()
	o.Name, o.Namespace = "test", controlplane.Namespace(t)
	r, err := rota.New(cfg, o)
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(cfg, r, managerOptions())
	require.NoError(t, err)
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
		Complete(nothing))
	c := mgr.GetClient()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "parent"}}
	require.NoError(t, c.Create(ctx, secret))
	want := func(hash uint64, label string) map[string]string {
		if label == "" {
			return nil
		}
		return map[string]string{label: sharding.LabelValue(hash)}
	}
	key := o.Key
	if key == slot.KeyUnknown {
		if key = slot.KeyName; o.Delivery == sharding.ShardSelector {
			key = slot.KeyUID
		}
	}
	hash := key.Hash(secret.Namespace, secret.Name, string(secret.UID))
	check := func(t *testing.T, obj client.Object, want map[string]string) {
		t.Helper()
		require.NoError(t, admin.Get(ctx, client.ObjectKeyFromObject(obj), obj))
		for label, value := range want {
			if got := obj.GetLabels()[label]; got != value {
				t.Errorf("label %s is %q, want %q", label, got, value)
			}
		}
		for label, got := range obj.GetLabels() {
			if strings.HasPrefix(label, names.Prefix) && want[label] == "" {
				t.Errorf("label %s is %q, want none", label, got)
			}
		}
	}
	check(t, secret, want(hash, parentLabel))
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
		Controller: ptr.To(true)}
	child := func(name string) *corev1.ConfigMap {
		cm := configMap(o.Namespace, name, "1")
		cm.OwnerReferences = []metav1.OwnerReference{owner}
		return cm
	}
	field := client.FieldOwner("test")
	for name, write := range map[string]func(context.Context, *corev1.ConfigMap) error{
		"create": func(ctx context.Context, cm *corev1.ConfigMap) error { return c.Create(ctx, cm) },
		"update": func(ctx context.Context, cm *corev1.ConfigMap) error {
			if err := admin.Create(ctx, cm); err != nil {
				return err
			}
			cm.Labels = map[string]string{"other": "label"}
			return c.Update(ctx, cm)
		},
		"patch": func(ctx context.Context, cm *corev1.ConfigMap) error {
			if err := c.Create(ctx, cm); err != nil {
				return err
			}
			before := cm.DeepCopy()
			cm.Labels = map[string]string{"other": "label"} // strips the label
			return c.Patch(ctx, cm, client.MergeFrom(before))
		},
		"apply-patch": func(ctx context.Context, cm *corev1.ConfigMap) error {
			cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
			err := c.Patch(ctx, cm, client.Apply, field)
			if err != nil {
				return err
			}
			cm.Data = map[string]string{"value": "2"}
			return c.Update(ctx, cm) // by the version that the answer had
		},
		"apply": func(ctx context.Context, cm *corev1.ConfigMap) error {
			return c.Apply(ctx, corev1ac.ConfigMap(cm.Name, cm.Namespace).
				WithLabels(map[string]string{"other": "label"}).WithData(cm.Data).
				WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Secret").WithName(owner.Name).
					WithUID(owner.UID).WithController(true)), field)
		},
		"apply-unstructured": func(ctx context.Context, cm *corev1.ConfigMap) error {
			u := &unstructured.Unstructured{}
			u.SetAPIVersion("v1")
			u.SetKind("ConfigMap")
			u.SetNamespace(cm.Namespace)
			u.SetName(cm.Name)
			u.SetOwnerReferences(cm.OwnerReferences)
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), field)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cm := child(name)
			require.NoError(t, write(ctx, cm))
			got := child(name)
			check(t, got, want(hash, childLabel))
			require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(got), got, ctrlrt.Live))
			applied, err := corev1ac.ExtractConfigMap(got, "test")
			require.NoError(t, err)
			if applied.Labels[childLabel] != "" {
				t.Errorf("label %s is among the fields of who applied the rest", childLabel)
			}
			if childLabel != "" && strings.HasPrefix(name, "apply") {
				for _, entry := range got.ManagedFields {
					if entry.Manager == "rota-labeller" {
						t.Error("labelled by a second write")
					}
				}
			}
		})
	}
	t.Run("nobody's", func(t *testing.T) {
		cm := configMap(o.Namespace, "orphan", "1")
		require.NoError(t, c.Create(ctx, cm))
		check(t, cm, nil)
		// Nobody has it in a cache, whoever asks finds it.
		var list corev1.ConfigMapList
		if err := c.List(ctx, &list, client.InNamespace(o.Namespace), ctrlrt.Live); err != nil || len(list.Items) != 7 {
			t.Errorf("a live list shows %d objects, error %v; want 7", len(list.Items), err)
		}
		require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(cm), cm, ctrlrt.Live))
	})
}

// What is applied carries the labels from the first write on, is not written again because of them, and loses them when
// it is applied without Rota.
func TestLabelsAreApplied(t *testing.T) {
	cfg, admin, ctx := controlplane.For(t).Config(), adminClient(t), t.Context()
	namespace, writes := controlplane.Namespace(t), atomic.Int64{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	r, err := rota.New(cfg, rota.Options{Name: "test", Namespace: namespace, Delivery: sharding.SlotLabel})
	require.NoError(t, err)
	mgr, err := ctrlrt.NewManager(cfg, r, managerOptions())
	require.NoError(t, err)
	require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
		Complete(nothing))
	c, field := mgr.GetClient(), client.FieldOwner("test")
	label := r.Adapt(adapter.Grant()).Share.Labels(configMapKind)[0]
	want := func(name string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap(name, namespace).
			WithLabels(map[string]string{"app": "x"}).WithData(map[string]string{"value": "1"}).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Secret").WithName("parent").
				WithUID("1-2-3").WithController(true))
	}
	get := func(name string) *corev1.ConfigMap {
		t.Helper()
		cm := &corev1.ConfigMap{}
		require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm, ctrlrt.Live))
		return cm
	}
	right := sharding.LabelValue(slot.KeyName.Hash(namespace, "parent", ""))
	apply := func(name string, wantWrites int64) *corev1.ConfigMap {
		t.Helper()
		writes.Store(0)
		require.NoError(t, c.Apply(ctx, want(name), field))
		cm := get(name)
		if n := writes.Load(); n != wantWrites || cm.Labels[label] != right || cm.Labels["app"] != "x" {
			t.Errorf("%s: %d writes, labels %v; want %d, %s=%s", name, n, cm.Labels, wantWrites, label, right)
		}
		return cm
	}
	first := apply("new", 1)
	ours, err := corev1ac.ExtractConfigMap(first, "test")
	require.NoError(t, err)
	if !equality.Semantic.DeepEqual(ours, want("new")) {
		t.Errorf("what Get tells of the fields applied is %v, want what was applied", ours)
	}
	if again := apply("new", 1); again.ResourceVersion != first.ResourceVersion {
		t.Error("applied again, it changed")
	}
	require.NoError(t, admin.Apply(ctx, want("new"), field))
	if left := get("new").Labels[label]; left != "" {
		t.Errorf("applied without Rota it still has the label: %s", left)
	}
	// Somebody else's value is no reason to refuse what the user applies.
	foreign := configMap(namespace, "foreign", "1")
	foreign.Labels = map[string]string{label: "17"}
	require.NoError(t, admin.Create(ctx, foreign))
	apply("foreign", 3) // refused, without the label, the label
	// Nor is a map of labels changed that the user may share.
	shared := map[string]string{"app": "x"}
	config := want("shared")
	config.Labels = shared
	if err := c.Apply(ctx, config, field); err != nil || len(shared) != 1 {
		t.Error(shared, err)
	}
	// A conflict about a field of the user's is the user's.
	foreign.Data, foreign.ResourceVersion = map[string]string{"value": "2"}, ""
	require.NoError(t, admin.Update(ctx, foreign))
	if err := c.Apply(ctx, want("foreign"), field); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
}

// Labels that somebody strips, edits or copies from other objects, of parents and of children, all the time and while a
// member joins, are put right, and whatever they say meanwhile every object is reconciled by its owner in the end.
func TestR11LabelsArePutRight(t *testing.T) {
	t.Parallel()
	const objects = 30
	c, namespace := adminClient(t), controlplane.Namespace(t)
	secret := func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("secret-%d", i)}}
	}
	child := func(i int) *corev1.ConfigMap { return configMap(namespace, fmt.Sprintf("child-secret-%d", i), "") }
	for i := range objects {
		require.NoError(t, c.Create(t.Context(), secret(i)))
	}
	value := func(i int) string {
		return sharding.LabelValue(slot.KeyName.Hash(namespace, secret(i).Name, ""))
	}
	right := func(want string, members ...*replica) func() string {
		return func() string {
			if problem := settled(members...)(); problem != "" {
				return problem
			}
			for i := range objects {
				parent, kid := secret(i), child(i)
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(parent), parent); err != nil {
					return err.Error()
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(kid), kid); err != nil {
					return err.Error()
				}
				if got := kid.Data["value"]; got != want {
					return fmt.Sprintf("%s has value %q, want %q", kid.Name, got, want)
				}
				if a, b := parent.Labels[sharding.HashLabel(slot.KeyName, secretKind)],
					kid.Labels[sharding.OwnerLabel(slot.KeyName, configMapKind)]; a != value(i) || b != value(i) {
					return fmt.Sprintf("labels of %s and its child are %q and %q, want %q", parent.Name, a, b, value(i))
				}
			}
			return ""
		}
	}
	rng := rand.New(rand.NewPCG(1, 2)) // not for secrets
	disturb := func(rounds int, want string) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := range rounds {
			i := rng.IntN(objects)
			wrong := []string{"null", `"` + value(rng.IntN(objects)) + `"`, fmt.Sprintf(`"%d"`, rng.IntN(slot.MaxCount)),
				`"x"`}[rng.IntN(4)]
			var obj client.Object = secret(i)
			label := sharding.HashLabel(slot.KeyName, secretKind)
			if n%2 == 1 {
				obj, label = child(i), sharding.OwnerLabel(slot.KeyName, configMapKind)
			}
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, wrong)
			if err := c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType,
				patch)); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if n < objects {
				set := fmt.Appendf(nil, `{"stringData":{"value":%q}}`, want)
				require.NoError(t, c.Patch(t.Context(), secret(n), client.RawPatch(types.MergePatchType, set)))
			}
			if n%5 == 4 {
				if err := c.Delete(t.Context(), child(rng.IntN(objects))); client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			<-tick.C
		}
	}
	o, cfg := rota.Options{Delivery: sharding.SlotLabel}, controlplane.For(t).Config()
	a, b := startParent(t, cfg, namespace, "a", o), startParent(t, cfg, namespace, "b", o)
	eventually(t, 30*time.Second, right("", a, b))
	disturb(200, "1")
	eventually(t, 90*time.Second, right("1", a, b))
	d := startParent(t, cfg, namespace, "d", o)
	disturb(200, "2")
	eventually(t, 90*time.Second, right("2", a, b, d))
	spread := func(want ...int) func() string {
		return func() string {
			owned := map[string]int{}
			names := ""
			for _, s := range d.Rota().Status().Duties {
				names += s.Name + " "
				owned[s.Owner]++
			}
			got := slices.Sorted(maps.Values(owned))
			if names != "rota.dev/label/ConfigMap rota.dev/label/Secret rota.dev/scrub " || !slices.Equal(got, want) {
				return fmt.Sprintf("duties %s, per member %v; want %v", names, got, want)
			}
			return ""
		}
	}
	eventually(t, 30*time.Second, spread(1, 1, 1))
	go a.stop()
	disturb(100, "3")
	a.leave(t)
	eventually(t, 90*time.Second, right("3", b, d))
	eventually(t, 30*time.Second, spread(1, 2))
}
