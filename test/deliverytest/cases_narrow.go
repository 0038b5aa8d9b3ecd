package deliverytest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// narrow skips a test of what a delivery mode that selects on the server does.
func (s suite) narrow(t *testing.T) {
	t.Helper()
	if s.delivery == sharding.Filter || s.ignores {
		t.Skip("receives everything")
	}
}

// wantHonored checks that only requested objects came.
func (r *rig) wantHonored() {
	r.t.Helper()
	traffic := r.share.Traffic()[r.kind.GroupKind]
	if traffic.Received == 0 || traffic.Foreign > 0 {
		r.t.Errorf("traffic %+v: want some, and nothing foreign", traffic)
	}
}

// A gain lists only the objects of the gained slots.
func (s suite) gainListsTheGained(t *testing.T) {
	s.narrow(t)
	r := s.rig(t)
	r.fill(4, 0, 1, 2, 3, 4, 5, 6, 7)
	r.run(r.informer)
	r.own(only(2, 3))
	for _, gained := range []slot.Set{only(4), only(0, 7), only(1, 6)} {
		before := r.faults.Counts().Listed
		r.must(r.warm(r.ctx, gained))
		if listed, want := r.faults.Counts().Listed-before, len(r.truth(gained)); listed != want {
			t.Errorf("gaining %v listed %d objects, want %d", gained, listed, want)
		}
	}
	r.wantStore(only(0, 1, 2, 3, 4, 6, 7))
	r.wantHonored()
}

// The counts show whether the server honors selectors.
func (s suite) trafficTells(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(1, 0, 1, 2, 3, 4, 5, 6, 7)
	r.run(r.informer)
	r.own(only(1))
	for _, key := range keys {
		r.update(key)
	}
	r.sync()
	if !s.ignores {
		r.wantHonored()
	} else if traffic := r.share.Traffic()[r.kind.GroupKind]; traffic.Foreign == 0 {
		t.Errorf("traffic %+v although the server ignores the selector", traffic)
	}
}

// The watch is replaced by a wider one while objects of old and new slots change: every change is heard, once.
func (s suite) growthUnderTraffic(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 0, 1, 2, 3)
	r.run(r.informer)
	r.own(only(0))
	ctx, stop := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			for _, key := range keys {
				if _, err := r.kind.Client.Update(r.ctx, key); err != nil {
					t.Error(err)
				}
			}
			pace()
		}
	})
	for n := slot.Slot(1); n < 8; n++ {
		r.own(only(n))
		if n%2 == 0 {
			pace()
		}
	}
	stop()
	wg.Wait()
	r.sync()
	all := only(0, 1, 2, 3, 4, 5, 6, 7)
	r.wantStore(all)
	r.wantLevel(all)
	r.noDeletions()
	heard := map[string]string{}
	for _, e := range r.heard.history() {
		if last := heard[e.key.String()]; !e.resync && resourceversion.Compare(e.version, last) <= 0 {
			t.Errorf("heard %s after %s", e, last)
		}
		heard[e.key.String()] = e.version
	}
	if !s.ignores {
		r.wantHonored()
	}
	r.eventually(func() error { // the one that was replaced may be about to end
		if counts := r.faults.Counts(); counts.Open != 1 {
			return fmt.Errorf("%d watches are open, of %d", counts.Open, counts.Opened)
		}
		return nil
	})
}

func (e event) String() string { return e.what + " " + e.key.String() + " at " + e.version }

// Connections break all the time while the watch grows, and objects are deleted.
func (s suite) cutWhileGrowing(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(4, 0, 1, 2, 3, 4, 5, 6, 7)
	r.run(r.informer)
	ctx, stop := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			r.faults.Cut()
			<-time.After(10 * time.Millisecond) // an API server takes that long to open one
		}
	})
	var held slot.Set
	for n := range slot.Slot(8) {
		r.own(only(n))
		held.Add(n)
		r.delete(keys[n])
		r.update(keys[8+n])
		r.delete(keys[16+n])
	}
	stop()
	wg.Wait()
	r.sync()
	r.wantStore(held)
	r.wantLevel(held)
	for n := range 8 {
		for _, key := range []int{n, 16 + n} {
			r.eventually(func() error {
				if level, reconciled := r.heard.levels()[keys[key]]; reconciled && level != "" {
					return fmt.Errorf("the deletion of %v was missed", keys[key])
				}
				return nil
			})
		}
	}
}

// Slots are lost and regained faster than the watch is replaced.
func (s suite) lostAndRegainedAtOnce(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(2, 1, 2, 3)
	r.run(r.informer)
	r.own(only(1))
	for i := range 20 {
		r.share.Hold(only(2, 3))
		r.share.Release(only(1, 2))
		r.update(keys[i%len(keys)])
		r.share.Hold(only(1))
		r.share.Release(only(3))
		r.share.Hold(only(2))
		r.update(keys[(i+1)%len(keys)])
	}
	r.must(r.warm(r.ctx, only(1, 2)))
	r.sync()
	r.wantStore(only(1, 2))
	r.open(only(1, 2))
	r.update(keys[0])
	r.wantStore(only(1, 2))
	r.wantLevel(only(1, 2))
}

// labelled skips a test of labels.
func (s suite) labelled(t *testing.T) *rig {
	t.Helper()
	if s.delivery != sharding.SlotLabel {
		t.Skip("has no labels")
	}
	return s.rig(t)
}

func (r *rig) relabel(key types.NamespacedName, labels map[string]string) Object {
	r.t.Helper()
	obj, err := r.kind.Client.Relabel(r.ctx, key, labels)
	r.must(err)
	return obj
}

// Labels are removed and changed. No existing object counts as deleted, and the labels are reported.
func (s suite) labelsGoWrong(t *testing.T) {
	r := s.labelled(t)
	var objs []Object
	for range 6 {
		objs = append(objs, r.create(r.key(1)))
	}
	r.run(r.informer)
	r.own(only(1, 2))
	set := func(value string) map[string]string { return map[string]string{r.hashLabel(): value} }
	far := strconv.Itoa(7 * 512)
	inside := strconv.Itoa(2*512 + 1)
	r.relabel(objs[0].Key, set(""))
	r.relabel(objs[1].Key, set(far))
	r.relabel(objs[2].Key, set("nonsense"))
	r.relabel(objs[3].Key, set(inside))
	gone := r.delete(objs[4].Key)
	r.wantSeen(gone.Key, "")
	r.sync()
	r.wantStore(only(1, 2))
	wrong := objs[:4]
	r.reported(wrong...)
	if slices.Contains(r.reports.keys(), objs[5].Key) {
		t.Errorf("%v was reported although its label is right", objs[5].Key)
	}
	// A list shows none of them.
	r.relists()
	r.sync()
	r.wantStore(only(1, 2))
	// Nor does one that loads the slot anew.
	r.share.Shut(only(1))
	r.must(r.share.Load(r.ctx, only(1), table.CauseExpelled, nil, false))
	opened := r.openNow(only(1))
	for _, obj := range wrong {
		if !slices.Contains(opened, obj.Key) {
			t.Errorf("Open does not return %v", obj.Key)
		}
	}
	r.wantStore(only(1, 2))
	r.noDeletions(gone.Key)
	// The informer looks up objects that left the watch.
	r.update(objs[0].Key)
	r.delete(objs[1].Key)
	r.wantSeen(objs[1].Key, "")
	r.wantStore(only(1, 2))
	// The label is put right.
	fixed := r.relabel(objs[0].Key, r.labels(objs[0].Key))
	r.relabel(objs[2].Key, r.labels(objs[2].Key))
	r.wantSeen(fixed.Key, fixed.Version)
	r.delete(objs[2].Key)
	r.wantSeen(objs[2].Key, "")
	r.wantStore(only(1, 2))
}

// An object gets the labels of another. The owner of the other's slot reports it; the object's own member keeps it.
func (s suite) labelsCopied(t *testing.T) {
	r := s.labelled(t)
	owner := r.create(r.key(1))
	key := r.key(5)
	child, err := r.kind.Client.Create(r.ctx, key, owner.Labels)
	r.must(err)
	r.run(r.informer)
	r.own(only(1))
	r.sync()
	r.wantStore(only(1))
	if !slices.Contains(r.reports.keys(), child.Key) {
		t.Errorf("%v, which has the label of %v, was not reported", child.Key, owner.Key)
	}
	r.must(r.warm(r.ctx, only(5)))
	fixed := r.relabel(key, r.labels(key))
	r.eventually(func() error {
		if got := store(r.informer)[key]; got != fixed.Version {
			return fmt.Errorf("version %q, want %q", got, fixed.Version)
		}
		return nil
	})
	r.heard.dropBeacons()
	r.wantHeard()
}

// The API server refuses the labels of some objects: they have none, or another's. Once all objects of the kind are
// asked for, the member has those of its slots and hears of their changes; and also once it is narrow again.
func (s suite) labelsRefused(t *testing.T) {
	r := s.labelled(t)
	mislabelled := func(n slot.Slot, value string) Object {
		key := r.key(n)
		labels := r.labels(key)
		if labels[r.hashLabel()] = value; value == "" {
			delete(labels, r.hashLabel())
		}
		obj, err := r.kind.Client.Create(r.ctx, key, labels)
		r.must(err)
		return obj
	}
	others := strconv.Itoa(7 * 512)
	r.fill(2, 1, 2, 5)
	gone := r.create(r.key(1))
	bare, wrong, gained := mislabelled(1, ""), mislabelled(1, others), mislabelled(2, "")
	mislabelled(5, "")
	r.run(r.informer)
	r.own(only(1))
	r.sync()
	if got := store(r.informer)[bare.Key]; got != "" {
		t.Fatalf("an object without label is in the store, at version %s", got)
	}
	kinds := map[schema.GroupKind]bool{r.kind.GroupKind: true}
	resume := r.faults.Pause()
	gone = r.delete(gone.Key) // only the wider list shows that
	r.share.Widen(kinds)
	r.wantSeen(gone.Key, "")
	resume()
	r.wantSeen(bare.Key, bare.Version)
	r.wantSeen(wrong.Key, wrong.Version)
	r.wantStore(only(1))
	late := mislabelled(1, "")
	r.wantSeen(late.Key, late.Version)
	bare = r.update(bare.Key)
	r.wantSeen(bare.Key, bare.Version)
	r.delete(wrong.Key)
	r.wantSeen(wrong.Key, "")
	r.own(only(2))
	gained = r.update(gained.Key)
	r.wantSeen(gained.Key, gained.Version)
	r.relists()
	r.sync()
	r.wantStore(only(1, 2))
	r.share.Widen(nil)
	late = r.relabel(late.Key, r.labels(late.Key))
	r.wantSeen(late.Key, late.Version)
	r.sync()
	r.wantStore(only(1, 2))
	r.reported(bare, gained)
	r.noDeletions(gone.Key, wrong.Key)
	// It is looked up from now on.
	r.relists()
	r.update(bare.Key)
	r.wantStore(only(1, 2))
	// Which slots are held changes while the kind is widened once more.
	r.share.Release(only(1))
	r.share.Widen(kinds)
	r.own(only(1, 5))
	r.sync()
	r.wantStore(only(1, 2, 5))
}

// A look-up shows that an object is gone while the stream is behind. Handlers do not hear its later events.
func (s suite) lookUpAhead(t *testing.T) {
	r := s.labelled(t)
	objs := []Object{r.create(r.key(1)), r.create(r.key(1))}
	r.run(r.informer)
	r.own(only(1))
	objs[0] = r.relabel(objs[0].Key, map[string]string{r.hashLabel(): ""})
	r.wantStore(only(1))
	resume := r.faults.Pause()
	r.relabel(objs[0].Key, r.labels(objs[0].Key))
	r.update(objs[0].Key)
	r.delete(objs[0].Key)
	r.wantSeen(objs[0].Key, "")
	again, err := r.kind.Client.Create(r.ctx, objs[0].Key, r.labels(objs[0].Key))
	r.must(err)
	resume()
	r.sync()
	r.wantStore(only(1))
	heard := []string{}
	for _, e := range r.heard.history() {
		if e.key == again.Key && e.what != "update" {
			heard = append(heard, e.what)
		}
	}
	if want := []string{"delete", "add"}; !slices.Equal(want, heard) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

// CatchUp does not return while a deletion is being confirmed.
func (s suite) deletionsAreWaitedFor(t *testing.T) {
	r := s.labelled(t)
	keys := r.fill(20, 1)
	r.run(r.informer)
	r.own(only(1))
	for _, key := range keys {
		r.delete(key)
	}
	r.must(r.share.CatchUp(r.ctx, r.share.Held()))
	want := []string{}
	for _, key := range keys {
		want = append(want, "delete "+key.String())
	}
	r.wantHeard(want...)
}

// A name is deleted and created again, under UIDs in different slots.
func (s suite) namesakes(t *testing.T) {
	if s.delivery != sharding.ShardSelector {
		t.Skip("a namesake lies in the same slot")
	}
	r := s.rig(t)
	for range 4 {
		key := r.key(1)
		first := r.create(key)
		if len(store(r.informer)) == 0 {
			r.run(r.informer)
			r.own(only(1))
		}
		// The stream is behind the list that brings the namesake.
		resume := r.faults.Pause()
		r.update(key)
		r.delete(key)
		r.places.want[key] = 2
		again := r.create(key)
		r.must(r.warm(r.ctx, only(2)))
		resume()
		r.sync()
		r.wantStore(only(1, 2))
		if got := store(r.informer)[key]; got != again.Version {
			t.Errorf("version %q of the namesake, want %q", got, again.Version)
		}
		r.eventually(func() error {
			if got := r.heard.seen()[key]; got == first.UID {
				return fmt.Errorf("the end of %v under UID %s was missed", key, got)
			}
			return nil
		})
		// And back, while the list is under way.
		r.share.Release(only(2))
		r.wantStore(only(1))
		finish := r.listing(func() error { return r.warm(r.ctx, only(2)) })
		r.delete(key)
		r.places.want[key] = 1
		back := r.create(key)
		finish()
		r.sync()
		r.wantStore(only(1, 2))
		if diff := cmp.Diff(back.Version, store(r.informer)[key]); diff != "" {
			t.Errorf("version of the last one (-want +got):\n%s", diff)
		}
		r.share.Release(only(2))
		r.wantStore(only(1))
	}
}
