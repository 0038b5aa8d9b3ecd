package deliverytest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// errNotServed is the answer of an API server that does not know a kind.
var errNotServed = apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: "gadgets"}, "",
	"404 page not found", 0, true)

// mayMoveOn takes slots through a handover, which must not wait for a kind that is not served.
func (r *rig) mayMoveOn(cause table.Cause, in ...types.NamespacedName) {
	r.t.Helper()
	set := only(2, 3)
	r.must(r.warm(r.ctx, set))
	versions := table.Versions{r.kind.GroupKind.String(): "1000000000"}
	r.must(r.share.Load(r.ctx, set, cause, versions, false))
	r.must(r.share.CatchUp(r.ctx, r.share.Held()))
	sameKeys := cmp.Transformer("", func(k []types.NamespacedName) []types.NamespacedName {
		return append([]types.NamespacedName{}, k...)
	})
	if got := r.openNow(set); !cmp.Equal(got, in, sameKeys) {
		r.t.Errorf("Open returns %v of a kind that is not served, want %v", got, in)
	}
}

func (s suite) notServedForAWhile(t *testing.T) {
	for name, cause := range map[string]table.Cause{"handed": table.CauseHanded, "expelled": table.CauseExpelled} {
		t.Run(name, func(t *testing.T) {
			r := s.rig(t)
			mine, theirs := r.fill(3, 1), r.fill(2, 2)
			r.run(r.informer)
			r.own(only(1))
			r.faults.Refuse(errNotServed)
			r.mayMoveOn(cause)
			r.wantStore(only(1)) // a 404 deletes nothing
			r.share.Release(only(3))
			r.must(r.warm(r.ctx, only(3)))
			gone, fresh := r.delete(mine[0]), r.create(r.key(3))
			r.faults.Refuse(nil)
			r.wantSeen(gone.Key, "")
			r.sync()
			r.wantStore(only(1, 2, 3))
			r.heard.dropBeacons(append(theirs, fresh.Key)...)
			want := []string{"delete " + gone.Key.String()}
			for _, key := range theirs {
				want = append(want, "add "+key.String())
			}
			r.wantHeard(want...) // slot 3 is not open
			if got := r.open(only(3)); !slices.Contains(got, fresh.Key) {
				t.Errorf("Open returns %v, without %v", got, fresh.Key)
			}
			r.wantLevel(only(1, 2, 3))
		})
	}
}

func (s suite) notServedAtFirst(t *testing.T) {
	r := s.rig(t)
	r.faults.Refuse(errNotServed)
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	keys := r.fill(3, 2)
	r.mayMoveOn(table.CauseAssigned)
	r.faults.Refuse(nil)
	r.wantSeen(keys[2], r.truth(only(2))[keys[2]])
	r.sync()
	r.wantStore(only(2, 3))
	r.wantLevel(only(2, 3))
	r.heard.dropBeacons(keys...)
	want := []string{}
	for _, key := range keys {
		want = append(want, "add "+key.String())
	}
	r.wantHeard(want...)
}

// A list fails because the kind is not served, while the watch continues: it is tried again.
func (s suite) listsNotServed(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 2)
	mine := r.fill(1, 1)
	r.run(r.informer)
	r.own(only(1))
	r.faults.FailLists(errNotServed)
	r.must(r.warm(r.ctx, only(2)))
	r.openNow(only(2))
	r.wantSeen(keys[0], r.truth(only(2))[keys[0]])
	r.update(mine[0])
	r.sync()
	r.wantStore(only(1, 2))
	r.wantLevel(only(1, 2))
	r.noDeletions()
}
