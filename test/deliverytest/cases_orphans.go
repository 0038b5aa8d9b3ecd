package deliverytest

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// orphanRig is a rig whose kind is owned, and whose orphans are delivered.
func (s suite) orphanRig(t *testing.T, key slot.Key) *rig {
	t.Helper()
	r := s.ownedRig(t, key)
	r.must(r.share.AddOrphans(r.kind.GroupKind))
	return r
}

// Orphans are held by whoever holds anything. They are adopted, and come back, by updates.
func (s suite) orphansAreWhole(t *testing.T) {
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.orphanRig(t, key)
		mine, other, theirs := r.parentIn(1), r.parentIn(2), r.parentIn(5)
		kept, orphan, foreign := r.child(mine), r.child(""), r.child(theirs)
		r.run(r.informer)
		r.holds()
		r.own(only(1, 2))
		r.holds(kept, orphan)
		r.wantDigests(only(1, 2), kept)
		r.forget()

		late := r.child("")
		orphan = r.adopt(orphan.Key, "", map[string]string{"edited": "true"})
		r.holds(kept, orphan, late)
		r.reached(orphan)
		r.wantHeard("add "+late.Key.String(), "update "+orphan.Key.String())
		// Adopted here, orphaned, and adopted elsewhere.
		orphan = r.adopt(orphan.Key, mine, r.stamps(mine))
		r.holds(kept, orphan, late)
		orphan = r.adopt(orphan.Key, other, r.stamps(other))
		r.holds(kept, orphan, late)
		orphan = r.adopt(orphan.Key, "", nil)
		r.holds(kept, orphan, late)
		orphan = r.adopt(orphan.Key, theirs, r.stamps(theirs))
		r.holds(kept, late)
		r.reached(orphan)
		update := "update " + orphan.Key.String()
		r.wantHeard(update, update, update, update)
		// From there, and away without having been an orphan.
		foreign = r.adopt(foreign.Key, "", nil)
		away := r.adopt(kept.Key, theirs, r.stamps(theirs))
		r.holds(late, foreign)
		r.reached(away)
		r.wantHeard("add "+foreign.Key.String(), "update "+kept.Key.String())
		last := r.delete(late.Key)
		r.holds(foreign)
		r.reached(last)
		r.wantHeard("delete " + late.Key.String())

		// Shut, lost and regained in silence.
		r.share.Shut(only(1, 2))
		foreign = r.adopt(foreign.Key, "", map[string]string{"edited": "again"})
		r.holds(foreign)
		r.share.Release(only(1, 2))
		r.holds()
		r.own(only(2))
		r.holds(foreign)
		r.reached(foreign)
		r.wantHeard()
		r.delete(foreign.Key)
		r.holds()
	})
}

// A list of gained slots shows changes of their children that the stream has not delivered yet. It does not hide
// objects of this member.
func (s suite) orphansWhileBehind(t *testing.T) {
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.orphanRig(t, key)
		mine, theirs := r.parentIn(1), r.parentIn(5)
		adopted, unchanged, deleted, orphaned := r.child(""), r.child(""), r.child(""), r.child(theirs)
		r.run(r.informer)
		r.own(only(1))
		r.holds(adopted, unchanged, deleted)
		r.forget()
		resume := r.faults.Pause()
		orphaned = r.adopt(orphaned.Key, "", nil)
		was := adopted
		adopted = r.adopt(adopted.Key, mine, r.stamps(mine))
		last := r.delete(deleted.Key)
		r.must(r.warm(r.ctx, only(5)))
		// Reconciles read the store: the child that mine adopted must stay visible.
		r.holds(was, unchanged, deleted, orphaned)
		resume()
		r.holds(adopted, unchanged, orphaned)
		r.reached(last)
		r.wantHeard("add "+orphaned.Key.String(), "update "+adopted.Key.String(), "delete "+deleted.Key.String())
		r.open(only(5))
		r.holds(adopted, unchanged, orphaned)
	})
}

// A list of a slot does not undo changes of orphans that happen meanwhile.
func (s suite) orphansWhileListed(t *testing.T) {
	s.keys(t, func(t *testing.T, key slot.Key) {
		r := s.orphanRig(t, key)
		mine, listed, theirs := r.parentIn(1), r.parentIn(2), r.parentIn(5)
		var keys []types.NamespacedName
		for range 5 {
			keys = append(keys, r.child("").Key)
		}
		coming := r.child(listed)
		r.run(r.informer)
		r.own(only(1))
		for _, again := range []bool{false, true} {
			// The list is answered before what happens meanwhile, and comes late.
			r.forget()
			finish := r.listing(func() error {
				r.share.HoldAnew(only(2))
				return r.share.Load(r.ctx, only(2), table.CauseExpelled, nil, false)
			})
			here := r.adopt(keys[0], mine, r.stamps(mine))
			r.adopt(keys[1], theirs, r.stamps(theirs))
			there := r.adopt(keys[2], listed, r.stamps(listed))
			r.delete(keys[3])
			came := r.adopt(coming.Key, "", nil)
			same := r.adopt(keys[4], "", map[string]string{"edited": strconv.FormatBool(again)})
			r.streamAt(same)
			finish()
			r.holds(here, there, came, same)
			r.reached(same)
			for _, what := range r.heard.take() {
				if what == "delete "+keys[0].String() || what == "delete "+keys[4].String() || what == "add "+keys[0].String() {
					t.Errorf("heard %q, which never was", what)
				}
			}
			// As it was, for the second time.
			for _, key := range keys[:3] {
				r.adopt(key, "", nil)
			}
			_, err := r.kind.Client.Create(r.ctx, keys[3], r.stamps(""))
			r.must(err)
			last := r.adopt(coming.Key, listed, r.stamps(listed))
			r.share.Release(only(2))
			r.reached(last)
		}
	})
}

// wantDigests checks that only children count in the digests of slots, both the informer's and the server's.
func (r *rig) wantDigests(set slot.Set, children ...Object) {
	r.t.Helper()
	held := r.share.Digest(set)[r.kind.GroupKind]
	census, _, err := r.share.Census(r.ctx)
	r.must(err)
	count := func(digests map[slot.Slot]sharding.Digest) (n int) {
		for s, digest := range digests {
			if set.Has(s) {
				n += digest.Objects
			}
			if int(s) >= int(slots) {
				r.t.Errorf("a digest of slot %d, which there is not", s)
			}
		}
		return n
	}
	if n := count(held); n != len(children) {
		r.t.Errorf("%d objects in the digests of what is held, want %d", n, len(children))
	}
	if n := count(census[r.kind.GroupKind]); n != len(children) {
		r.t.Errorf("%d objects in the digests of what there is, want %d", n, len(children))
	}
}
