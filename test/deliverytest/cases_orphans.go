package deliverytest

import (
	"testing"

	"github.com/rota-dev/rota/internal/delivery/sharding"
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
