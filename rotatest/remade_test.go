package rotatest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/habits"
)

func TestRemade(t *testing.T) {
	type step struct {
		verb, name string
		created    bool
	}
	for _, c := range []struct {
		name  string
		steps []step
		times int
		by    string // which deletion
	}{
		{"made", []step{{"create", "a", true}, {"update", "a", false}}, 0, ""},
		{"deleted", []step{{"create", "a", true}, {"delete", "a", false}}, 0, ""},
		{"made again", []step{{"create", "a", true}, {"delete", "a", false}, {"create", "a", true}}, 1, "a"},
		{"applied again", []step{{"apply", "a", true}, {"delete", "a", false}, {"apply", "a", true},
			{"apply", "a", false}}, 1, "a"},
		{"its collection was deleted", []step{{"create", "a", true}, {"delete", "", false}, {"create", "a", true}}, 1, ""},
		{"another was", []step{{"create", "a", true}, {"delete", "b", false}, {"create", "b", true}}, 0, ""},
		{"twice", []step{{"create", "a", true}, {"delete", "a", false}, {"create", "a", true}, {"delete", "a", false},
			{"create", "a", true}}, 2, "a"},
	} {
		r := newRecord(nil)
		for _, s := range c.steps {
			w := write{verb: s.verb, created: s.created}
			w.Resource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
			w.Name = client.ObjectKey{Namespace: "n", Name: s.name}
			r.add(w)
		}
		got := r.remade()[place{schema.GroupResource{Resource: "secrets"}, client.ObjectKey{Namespace: "n", Name: "a"}}]
		if got.times != c.times || got.deleted.Name.Name != c.by || (got.deleted.verb == "delete") != (c.times > 0) {
			t.Errorf("%s: %d times after the deletion of %q", c.name, got.times, got.deleted.Name)
		}
	}
}

// Of generated names, nobody knows which object was the right one. The log tells of them.
func TestGeneratedAreTold(t *testing.T) {
	r := lone(1, 1).run
	made := write{verb: "create", created: true, generateName: "a-"}
	made.Resource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	for _, name := range []string{"a-1", "a-2", "a-3"} {
		made.Name = client.ObjectKey{Namespace: "n", Name: name}
		r.record.add(made)
	}
	r.kit.generated = r.record.generated()
	if r.noteGenerated(); r.notes() != "" {
		t.Errorf("as often as with one member: %s", r.notes())
	}
	r.record.add(made)
	const want = "of secrets n/a-<generated> 4 were made, with one member 3, and some deleted"
	if r.noteGenerated(); !strings.Contains(r.notes(), want) {
		t.Errorf("it does not say %q: %s", want, r.notes())
	}
}

// What an operator makes again with one member, too, is no failure; nor what it may make again.
func TestRecreates(t *testing.T) {
	slow(t)
	if failed := try(t, habits.Replacing, func(*Options, *kit) {}, "moves lag kill"); len(failed) > 0 {
		t.Errorf("it fails: %v", failed)
	}
	allowed := func(o *Options, _ *kit) { o.Recreates = []schema.GroupKind{{Kind: "Secret"}} }
	if failed := try(t, habits.Tidy, allowed, "lag"); len(failed) > 0 {
		t.Errorf("it fails with Recreates: %v", failed)
	}
}
