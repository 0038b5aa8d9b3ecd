package rotatest

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/slot"

	"github.com/rota-dev/rota/test/habits"
)

// neighbors are items whose slots one of two members would get: their slots are next to each other.
func neighbors(namespace string, n int) (all []client.Object) {
	slots := slot.Count(slot.DefaultCount)
	for i := 0; len(all) < n; i++ {
		name := fmt.Sprintf("item-%d", i)
		if slots.Of(slot.HashName(namespace, name)) >= 16 {
			continue
		}
		obj := habits.Items(namespace, 1)[0]
		obj.SetName(name)
		all = append(all, obj)
	}
	return all
}

// Few objects are tested, or the run says that they were not.
func TestFewObjects(t *testing.T) {
	stock := func(mgr *ctrlrt.Manager) error { return habits.Operator(habits.Correct).SetupStock(mgr) }
	for i, c := range []struct {
		name, fault string
		of          habits.Operator
		how         func(o *Options, namespace string)
		says        string // "": nothing
	}{
		{"two, which one member would get", "share", habits.Totaling, func(o *Options, namespace string) {
			o.Objects = neighbors(namespace, 2)
		}, `metadata.annotations.total: -"2" +"1"`},
		{"one", "share", habits.Totaling, func(o *Options, namespace string) { o.Objects = habits.Items(namespace, 1) },
			"only one member had something to do, so nothing was tested: the operator works on ConfigMap "},
		{"one namespace", "share", habits.Totaling, func(o *Options, _ string) { o.Rota.Key = slot.KeyNamespace },
			"and 5 more in the same slot. All objects of a namespace have one owner"},
		{"one, which moves", "moves", habits.Correct, func(o *Options, namespace string) { o.Objects = habits.Items(namespace, 1) }, ""},
		{"nothing is sharded", "reference", habits.Correct, func(o *Options, _ string) {
			o.Setup, o.Manager.LeaderElection = stock, true
		}, "no sharded controller reconciled anything"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				slow(t)
			}
			failed := try(t, c.of, func(o *Options, _ *kit) {
				o.Change = nil
				c.how(o, o.Objects[0].GetNamespace())
			}, c.fault)
			report := failed["reference"] + failed["share"] + failed["moves"]
			if c.says == "" && report != "" || !strings.Contains(report, c.says) {
				t.Errorf("want %q in the report: %s", c.says, report)
			}
		})
	}
}

// Chance gives one member all objects of which nobody knows the slots before. That is no failure.
func TestSharedByChance(t *testing.T) {
	m := lone(1, 1)
	r := m.run
	visited := func(name string) {
		key := types.NamespacedName{Namespace: "a", Name: name}
		observer{r.reconciles, m}.Begin(t.Context(), schema.GroupKind{Kind: "ConfigMap"}, key)
	}
	for _, key := range []slot.Key{slot.KeyName, slot.KeyUID} {
		r.kit.slots, r.kit.key = slot.DefaultCount, key
		r.reconciles, r.happened = newReconciles(r), nil
		visited("one")
		if err := r.shared(); err == nil || !strings.Contains(err.Error(), "only one member had something to do") {
			t.Errorf("%v: got %v of one object", key, err)
		}
		visited("two")
		if err := r.shared(); err != nil || !strings.Contains(r.notes(), "one member worked on all 2 objects, by chance") {
			t.Errorf("%v: got %v of two objects, and told %q", key, err, r.notes())
		}
	}
}
