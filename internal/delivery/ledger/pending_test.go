package ledger_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/ledger"
)

var (
	kind = schema.GroupKind{Kind: "ConfigMap"}
	name = types.NamespacedName{Namespace: "a", Name: "x"}
)

func write(version string) ledger.Unshown {
	return ledger.Unshown{Kind: kind, Name: name, Version: version}
}

// Answers come in any order: what is kept is the latest version, every place, and the object that is gone.
func TestAnswersInAnyOrder(t *testing.T) {
	of := func(p ...ledger.Place) []ledger.Place { return p }
	one, two := ledger.Place{Key: "k", Slot: 1}, ledger.Place{Key: "k", Slot: 2}
	update := write("12")
	update.UID, update.Places, update.Labels = "first", of(two), []labels.Set{{"l": "2"}}
	create := write("10")
	create.UID, create.Places, create.Labels = "first", of(one), []labels.Set{{"l": "1"}}
	gone := write("11")
	gone.Gone, gone.Places = "first", of(one)
	for _, order := range [][3]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}} {
		var r ledger.Pending
		for _, n := range order {
			switch n {
			case 0:
				r.Note(create)
			case 1:
				r.Note(update)
			case 2:
				r.Delete(gone)
			}
		}
		w := r.Of(kind, name)
		if w == nil || w.Version != "12" || w.Gone != "first" || w.Blind || len(w.Places) != 2 || len(w.Labels) != 2 {
			t.Errorf("%v: %+v", order, w)
		}
	}
}

// A deletion of an object that nobody has seen needs a version, unless this member wrote that very object.
func TestBlindDeletions(t *testing.T) {
	gone := write("")
	gone.Gone = "first"
	for _, c := range []struct {
		name  string
		wrote types.UID
		blind bool
	}{{"nothing was written", "", true}, {"a namesake was written", "other", true}, {"it was written", "first", false}} {
		var r ledger.Pending
		if c.wrote != "" {
			w := write("10")
			w.UID = c.wrote
			r.Note(w)
		}
		r.Delete(gone)
		w := r.Of(kind, name)
		if w.Blind != c.blind {
			t.Errorf("%s: blind: %v", c.name, w.Blind)
		}
		if !c.blind {
			continue
		}
		cache := &struct{ int }{}
		if r.Shown(w, cache, []any{cache}); r.Of(kind, name) == nil {
			t.Errorf("%s: forgotten before its version was known", c.name)
		}
		proved := r.Prove(w, "20")
		if proved.Blind || proved.Version != "20" {
			t.Errorf("%s: %+v", c.name, proved)
		}
		if again := r.Prove(w, "30"); again.Version != "20" {
			t.Errorf("%s: proved twice: %+v", c.name, again)
		}
	}
}

// What is kept of an object does not grow with the number of its writes: often nothing reads it.
func TestManyWritesOfOneObject(t *testing.T) {
	const writes = 10000
	place := ledger.Place{Key: "k", Slot: 1}
	for _, c := range []struct {
		name   string
		labels func(n int) labels.Set
		want   int
	}{
		{"the same labels", func(int) labels.Set { return labels.Set{"l": "1"} }, 1},
		{"a few", func(n int) labels.Set { return labels.Set{"l": fmt.Sprint(n % 3)} }, 3},
		{"other labels each time", func(n int) labels.Set { return labels.Set{"l": fmt.Sprint(n)} }, 0},
		{"no labels", func(int) labels.Set { return nil }, 1},
	} {
		var r ledger.Pending
		for n := range writes {
			w := write(fmt.Sprint(n + 1))
			w.Places, w.Labels = []ledger.Place{place}, []labels.Set{c.labels(n)}
			r.Note(w)
		}
		w := r.Of(kind, name)
		if len(w.Labels) != c.want || len(w.Places) != 1 || w.Version != fmt.Sprint(writes) {
			t.Errorf("%s: %d label sets, %d places, version %s", c.name, len(w.Labels), len(w.Places), w.Version)
		}
		if r.Note(write(fmt.Sprint(writes + 1))); len(r.Of(kind, name).Labels) != c.want {
			t.Errorf("%s: %d label sets after a write that does not tell", c.name, len(r.Of(kind, name).Labels))
		}
	}
}

// A write is forgotten when all caches show it, and not if the object was written again since the reader looked.
func TestShown(t *testing.T) {
	var r ledger.Pending
	a, b := &struct{ int }{1}, &struct{ int }{2}
	both := []any{a, b}
	r.Note(write("10"))
	old := r.Of(kind, name)
	r.Note(write("11"))
	r.Shown(old, a, both)
	w := r.Of(kind, name)
	if w.IsShown(a) {
		t.Error("a later write counts as shown")
	}
	r.Shown(w, a, both)
	if w = r.Of(kind, name); w == nil || !w.IsShown(a) || w.IsShown(b) {
		t.Fatalf("one of two caches shows it: %+v", w)
	}
	r.Shown(w, b, both)
	if w := r.Of(kind, name); w != nil {
		t.Errorf("all caches show it: %+v", w)
	}
	if w := r.Prove(old, "12"); w != nil {
		t.Errorf("proved after it was forgotten: %+v", w)
	}
}

func TestIn(t *testing.T) {
	var r ledger.Pending
	if got := r.In(kind, ""); len(got) != 0 {
		t.Errorf("nothing was written, got %v", got)
	}
	many := 0
	for n := range 200 {
		w := write("10")
		w.Name = types.NamespacedName{Namespace: fmt.Sprint("ns", n%2), Name: fmt.Sprint(n)}
		if r.Note(w) {
			many++
		}
	}
	if all, some := len(r.In(kind, "")), len(r.In(kind, "ns1")); all != 200 || some != 100 {
		t.Errorf("%d in all, %d in a namespace", all, some)
	}
	if many != 1 {
		t.Errorf("asked %d times to look for writes that are shown, though nobody answered", many)
	}
	r.Swept(kind)
	if w := write("10"); r.Note(w) {
		t.Error("asked again at once")
	}
}
