package ctrlrt_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

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
		noError(t, c.Create(t.Context(), secret(i)))
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
				noError(t, c.Patch(t.Context(), secret(n), client.RawPatch(types.MergePatchType, set)))
			}
			if n%5 == 4 {
				if err := c.Delete(t.Context(), child(rng.IntN(objects))); client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			<-tick.C
		}
	}
	o := rota.Options{Delivery: sharding.SlotLabel}
	a, b := startParent(t, namespace, "a", o), startParent(t, namespace, "b", o)
	eventually(t, 30*time.Second, right("", a, b))
	disturb(200, "1")
	eventually(t, 90*time.Second, right("1", a, b))
	d := startParent(t, namespace, "d", o)
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
