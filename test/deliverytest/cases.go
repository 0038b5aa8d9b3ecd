package deliverytest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

func (s suite) emptyShareSyncs(t *testing.T) {
	r := s.rig(t)
	r.fill(1, 0, 1)
	r.run(r.informer)
	r.sync()
	r.wantStore(only())
	r.wantHeard()
	// One of the kind was asked for, to learn its version.
	if counts := r.faults.Counts(); counts.Lists > 0 {
		t.Errorf("%d lists for nothing, of which %d were WatchLists", counts.Lists, counts.Streamed)
	}
}

func (s suite) holdsAndHearsItsShare(t *testing.T) {
	r := s.rig(t)
	before := r.fill(3, 1, 2)
	r.fill(2, 3)
	r.must(r.warm(r.ctx, only(1))) // nothing runs yet
	r.run(r.informer)
	if streamed := r.faults.Counts().Streamed; (streamed > 0) != s.watchList {
		t.Errorf("WatchList is %v, but %d lists used it", s.watchList, streamed)
	}
	r.must(r.warm(r.ctx, only(1, 2)))
	r.wantStore(only(1, 2))
	r.must(r.share.Load(r.ctx, only(1, 2), table.CauseAssigned, nil, false))
	r.wantHeard()
	r.wantOpen(only(1, 2), before)
	if again := r.open(only()); len(again) != 0 {
		t.Errorf("Open of nothing: %v", again)
	}
	added, foreign := r.create(r.key(1)), r.create(r.key(3))
	r.update(before[0])
	r.update(foreign.Key)
	r.delete(before[1])
	r.wantSeen(before[1], "")
	r.wantHeard("add "+added.Key.String(), "update "+before[0].String(), "delete "+before[1].String())
	r.wantStore(only(1, 2))
	if !r.share.Exists(r.kind.GroupKind, before[0]) || r.share.Exists(r.kind.GroupKind, before[1]) ||
		r.share.Exists(r.kind.GroupKind, foreign.Key) {
		t.Error("Exists is wrong")
	}
	r.wantDigest(1)
}

// Slots without a former owner are listed once: the list that brings them is the one that decides (rule R8). Slots that
// were listed before follow the stream to the present state.
func (s suite) listsWhatNobodyHadOnce(t *testing.T) {
	s.follows = 3 * time.Second
	r := s.rig(t)
	r.fill(3, 1, 2)
	r.run(r.informer)
	r.sync()
	r.must(r.warm(r.ctx, only(2)))
	load := func(set slot.Set, want int) {
		t.Helper()
		lists := r.faults.Counts().Lists
		r.share.HoldAnew(set)
		r.must(r.share.Load(r.ctx, set, table.CauseAssigned, nil, false))
		if after := r.faults.Counts().Lists; after-lists != want {
			t.Errorf("%d lists, want %d", after-lists, want)
		}
	}
	load(only(1), 1)
	// Without traffic only a bookmark could tell that the stream is current, and an idle API server may send none.
	stop := r.busy(2)
	load(only(2), 0)
	stop()
	r.wantStore(only(1, 2))
}

// A second Run of an informer does nothing, whether slots are here or not: programs that start a factory also run its
// informers.
func (s suite) ranTwice(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1, 2)
	r.run(r.informer)
	again := func() {
		t.Helper()
		returned := make(chan struct{})
		go func() { r.informer.RunWithContext(r.ctx); close(returned) }()
		select {
		case <-returned:
		case <-time.After(10 * time.Second):
			t.Fatal("a second Run does not return")
		}
	}
	again()
	r.own(only(1))
	r.wantStore(only(1))
	again()
	r.own(only(2))
	r.wantStore(only(1, 2))
	r.update(keys[0])
	r.wantStore(only(1, 2))
}

func (s suite) losingIsSilent(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1, 2)
	r.run(r.informer)
	r.own(only(1, 2))
	r.share.Shut(only(1))
	for _, key := range keys {
		if _, in := r.truth(only(1))[key]; in {
			r.update(key)
		}
	}
	r.wantStore(only(1, 2))
	r.share.Release(only(1))
	r.wantStore(only(2))
	r.sync()
	r.heard.dropBeacons()
	r.wantHeard()
}

func (s suite) deletedSinceWarm(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1)
	r.run(r.informer)
	r.must(r.warm(r.ctx, only(1)))
	r.delete(keys[0])
	short := r.create(r.key(1)).Key
	r.delete(short)
	r.sync()
	want := append(slices.Clone(keys), short)
	for key := range r.truth(only(1)) {
		if !slices.Contains(want, key) {
			want = append(want, key) // a beacon
		}
	}
	slices.SortFunc(want, compareNames)
	r.wantOpen(only(1), want)
	if got := r.open(only(1)); slices.Contains(got, keys[0]) {
		t.Error("a deletion is returned twice")
	}
	r.wantHeard()
	last := r.delete(keys[1])
	r.wantSeen(last.Key, "")
	r.wantHeard("delete " + keys[1].String())
}

func (s suite) handedWaits(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(2, 1)
	r.run(r.informer)
	r.must(r.warm(r.ctx, only(1)))
	lists := r.faults.Counts().Lists
	gone := r.delete(keys[0])
	versions := table.Versions{r.kind.GroupKind.String(): r.update(keys[1]).Version, "Unheard.of": "1"}
	r.must(r.share.Load(r.ctx, only(1), table.CauseHanded, versions, false))
	r.wantStoreNow(only(1))
	if after := r.faults.Counts().Lists; after != lists {
		t.Logf("the stream was too slow: %d lists", after-lists)
	}
	if got := r.open(only(1)); !slices.Contains(got, gone.Key) {
		t.Errorf("Open does not return what was deleted since warming: %v", got)
	}
}

// The version is that of an event that this informer never gets.
func (s suite) handedFallsBack(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(2, 1)
	r.run(r.informer)
	r.must(r.warm(r.ctx, only(1)))
	resume := r.faults.Pause()
	defer resume()
	versions := table.Versions{r.kind.GroupKind.String(): r.delete(keys[0]).Version}
	r.must(r.share.Load(r.ctx, only(1), table.CauseHanded, versions, false))
	r.wantStoreNow(only(1))
	r.wantOpen(only(1), keys)
	r.wantHeard()
}

func (s suite) expelledListsAgain(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1)
	r.run(r.informer)
	r.must(r.warm(r.ctx, only(1)))
	resume := r.faults.Pause()
	r.delete(keys[0])
	r.update(keys[1])
	r.must(r.share.Load(r.ctx, only(1), table.CauseExpelled, nil, false))
	r.wantStoreNow(only(1))
	lists := r.faults.Counts().Lists
	r.must(r.share.Load(r.ctx, only(1), table.CauseExpelled, nil, true))
	if again := r.faults.Counts().Lists; again != lists {
		t.Error("slots that were held all along were listed again")
	}
	r.wantOpen(only(1), keys)
	resume()
	r.sync()
	r.wantStore(only(1))
	r.heard.dropBeacons()
	r.wantHeard()
}

func (s suite) versions(t *testing.T) {
	r := s.rig(t)
	kind := r.kind.GroupKind.String()
	r.fill(1, 1, 2)
	r.run(r.informer)
	r.own(only(1, 2))
	gone := r.delete(r.create(r.key(1)).Key)
	r.wantSeen(gone.Key, "")
	if gone.Version != "" {
		if got := r.share.Versions(only(1))[kind]; got != gone.Version {
			t.Errorf("version of a deletion: %s, want %s", got, gone.Version)
		}
	}
	other := r.update(r.create(r.key(2)).Key)
	r.wantSeen(other.Key, other.Version)
	if got := r.share.Versions(only(2))[kind]; got != other.Version {
		t.Errorf("version: %s, want %s", got, other.Version)
	}
	wrote := other.Version + "0"
	r.share.Write(r.kind.GroupKind, other.Key, nil, 2).Answered(other.meta(wrote))
	if got := r.share.Versions(only(1, 2))[kind]; got != wrote {
		t.Errorf("version written: %s, want %s", got, wrote)
	}
	if got := r.share.Versions(only(5)); got[kind] != "" {
		t.Errorf("versions of an empty slot: %v", got)
	}
}

// A new count waits until handlers have heard of all writes of this member, deletions included. Writes of others do not
// count.
func (s suite) showsWritten(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1)
	r.run(r.informer)
	r.own(only(1))
	resume := r.faults.Pause()
	r.must(r.share.ShowWritten(r.ctx, 1)) // nothing was written here
	r.update(keys[0])
	r.must(r.share.ShowWritten(r.ctx, 1))
	lags := func(what string) {
		t.Helper()
		soon, cancel := context.WithTimeout(r.ctx, 300*time.Millisecond)
		defer cancel()
		if err := r.share.ShowWritten(soon, 1); err == nil {
			t.Errorf("%s is said to be shown that no watch has brought yet", what)
		}
	}
	mine := r.update(keys[1])
	r.share.Write(r.kind.GroupKind, mine.Key, nil, 1).Answered(mine.meta(mine.Version))
	lags("a write")
	resume()
	r.must(r.share.ShowWritten(r.ctx, 1))
	r.must(r.sees(mine.Key, mine.Version))
	resume = r.faults.Pause()
	w := r.share.Write(r.kind.GroupKind, keys[2], nil, 1)
	r.delete(keys[2])
	w.Deleted(nil)
	lags("a deletion")
	resume()
	r.must(r.share.ShowWritten(r.ctx, 1))
	r.must(r.sees(keys[2], ""))
	r.wantHeard("update "+keys[0].String(), "update "+keys[1].String(), "delete "+keys[2].String())
}

func (s suite) reachedOnAQuietKind(t *testing.T) {
	r := s.rig(t)
	r.fill(1, 1)
	r.run(r.informer)
	r.own(only(1))
	// The version rises without an event of the informer.
	foreign := r.createUnseen(1)
	_, version, err := r.kind.Client.List(r.ctx)
	r.must(err)
	begun := time.Now()
	r.must(r.share.Reached(r.ctx, table.Versions{r.kind.GroupKind.String(): version}))
	t.Logf("reached %s in %v", version, time.Since(begun).Round(time.Millisecond))
	if r.share.Exists(r.kind.GroupKind, foreign.Key) {
		t.Error("the user's selector is ignored")
	}
}

// A proxy drops the bookmarks. An owner that gives slots up knows of all deletions nevertheless, by a list, and does
// not wait for a bookmark again. Once bookmarks come it needs no list.
func (s suite) noBookmarks(t *testing.T) {
	r := s.rig(t)
	keys := r.fill(3, 1)
	r.run(r.informer)
	r.own(only(1))
	r.faults.DropBookmarks(true)
	foreign := func() { r.createUnseen(1) } // the version rises without an event of the informer
	catchUp := func() time.Duration {
		begun := time.Now()
		r.must(r.share.CatchUp(r.ctx, only(1)))
		return time.Since(begun)
	}
	foreign()
	first := catchUp()
	r.eventually(func() error {
		if got := r.share.Bookmarkless(); !slices.Contains(got, r.kind.GroupKind) {
			return fmt.Errorf("%v are said to be without bookmarks", got)
		}
		return nil
	})
	foreign()
	lists := r.faults.Counts().Lists
	second := catchUp()
	t.Logf("caught up after %v and %v", first, second)
	if r.faults.Counts().Lists == lists {
		t.Error("caught up without a list, although no bookmarks come")
	}
	resume := r.faults.Pause() // the watch lags
	gone := r.delete(keys[0])
	catchUp()
	r.wantSeen(gone.Key, "")
	resume()
	r.faults.DropBookmarks(false)
	r.eventually(func() error {
		foreign()
		catchUp()
		if got := r.share.Bookmarkless(); len(got) > 0 {
			return fmt.Errorf("%v are still said to be without bookmarks", got)
		}
		return nil
	})
	r.eventually(func() error {
		foreign()
		lists := r.faults.Counts().Lists
		catchUp()
		if n := r.faults.Counts().Lists - lists; n > 0 {
			return fmt.Errorf("%d lists although bookmarks come", n)
		}
		return nil
	})
	r.wantStore(only(1))
	r.noDeletions(gone.Key)
}

func (s suite) keyNamespace(t *testing.T) {
	r := s.rig(t)
	if r.kind.Namespaces[0] == "" {
		t.Skip("a cluster-scoped kind")
	}
	if s.delivery == sharding.ShardSelector {
		t.Skip("hashes UIDs")
	}
	r.hashed = slot.KeyNamespace
	r.share = s.share(delivery.Options{Key: slot.KeyNamespace, Mode: s.delivery})
	r.must(r.share.Shard(r.kind.GroupKind))
	r.informer, r.faults = r.newInformer("")
	r.heard = r.listen(r.informer)
	keys := r.fill(2, r.share.Slot(r.kind.Namespaces[0], "", ""), r.share.Slot(r.kind.Namespaces[1], "", ""))
	set := only(r.share.Slot(r.kind.Namespaces[0], "", ""))
	r.run(r.informer)
	r.own(set)
	for _, key := range keys {
		_, has := store(r.informer)[key]
		if want := set.Has(r.share.Slot(key.Namespace, "", "")); has != want {
			t.Errorf("%v: held %v, want %v", key, has, want)
		}
	}
}
