package ledger

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// view is an informer of a whole kind in some namespaces.
type view struct {
	has     map[types.NamespacedName]types.UID
	version string
}

func (v *view) Shows(name types.NamespacedName, uid types.UID) bool { return v.has[name] != uid }

func (v *view) Version() string { return v.version }

// The informers of a whole kind may each be of a namespace, of which one is quiet. The next owner has to reach what the
// other one showed.
func TestDeletionThatOneOfTwoInformersShows(t *testing.T) {
	const key = "ConfigMap"
	name := types.NamespacedName{Namespace: "busy", Name: "x"}
	busy := &view{has: map[types.NamespacedName]types.UID{name: "uid"}, version: "90"}
	quiet := &view{version: "50"}
	at := Place{Key: key, Slot: 3}
	set := slot.Set{}
	set.Add(at.Slot)
	for _, views := range [][]View{{busy, quiet}, {quiet, busy}} {
		busy.has[name], busy.version = "uid", "90"
		r := NewRecord(8, func(string) []View { return views })
		r.Deleted(at, name, "uid")
		if !r.Awaits(set) {
			t.Error("a deletion that no informer has shown is forgotten")
		}
		delete(busy.has, name)
		busy.version = "100"
		if r.Awaits(set) {
			t.Error("a deletion that the informers have shown is waited for")
		}
		if got, want := r.Versions(set), (table.Versions{key: "100"}); got[key] != want[key] {
			t.Errorf("the next owner has to reach %v, want %v", got, want)
		}
	}
}
