package delivery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// The API server answers most deletions without the version that they have, and answers get lost. Whoever owns the slot
// next has to see what came of such a write, too. So a deletion is remembered until the informers have shown it, since
// they note every version that they see; and what is left when the slot is handed over is proved by a version that was
// read, consistently, after the write.

const (
	// settlePatience is how long Settle waits for the informers: a version that they have seen is reached by others
	// sooner than one that was read, which is that of the whole store, and on a quiet kind takes a list.
	settlePatience = 100 * time.Millisecond
	settlePeriod   = 2 * time.Millisecond
	// settleTimeout bounds the reads of Settle. The slots are shut meanwhile.
	settleTimeout = time.Second
	// owedSweep is from how many deletions on those are looked for that the informers have shown, owedMax how many are
	// told apart.
	owedSweep = 16
	owedMax   = 1024
)

// owed is what the next owner of a place has to see although its version is not known.
type owed struct {
	// gone are the UIDs of objects that were deleted and that a store may still have, by name.
	gone  map[cache.ObjectName]types.UID
	sweep int
	// blind counts the writes of which the informers cannot tell.
	blind uint64
	// unread says that no version could be read that proves anything: the next owner lists.
	unread bool
}

// Deleted notes that the object was deleted, or that there is none, as the API server answered. obj is what it answered
// with; nil: it was a Status.
func (w *Write) Deleted(obj metav1.Object) {
	if w == nil {
		return
	}
	s := w.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj != nil && obj.GetResourceVersion() != "" {
		w.note(obj)
		if remains(obj) {
			return // its informers will show that version
		}
	}
	w.deleted()
}

// remains says that an object that was deleted is still there, to be deleted in the end by others.
func remains(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && (len(obj.GetFinalizers()) > 0 || grace != nil && *grace > 0)
}

// deleted notes that the object is gone. s.mu is held.
func (w *Write) deleted() {
	for _, p := range w.anywhere() {
		o := w.share.owes(p)
		if w.uid == "" || len(o.gone) >= owedMax {
			o.blind++ // it may not have come yet, or be gone again
			continue
		}
		o.gone[w.name] = w.uid
		if len(o.gone) > o.sweep {
			w.share.settleShown(p, o)
			o.sweep = 2*len(o.gone) + owedSweep
		}
	}
}

// Lost notes that nobody knows which version the write has, or whether it was made: its answer was lost, could not be
// read, or says nothing. It is called when the request has been given up; that it may still be admitted is for the
// caller to wait for.
func (w *Write) Lost() {
	if w == nil {
		return
	}
	w.share.mu.Lock()
	defer w.share.mu.Unlock()
	for _, p := range w.anywhere() {
		w.share.owes(p).blind++
	}
}

// anywhere returns where the object counts, or else the slots that the write was made for, as far as this member has
// them.
func (w *Write) anywhere() []place {
	places := w.places
	if len(places) == 0 {
		places = w.by
	}
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool { return !w.share.Holds(p.slot) })
}

// owes returns what is owed to a place. s.mu is held.
func (s *Share) owes(p place) *owed {
	o := s.owed[p]
	if o == nil {
		o = &owed{gone: map[cache.ObjectName]types.UID{}, sweep: owedSweep}
		s.owed[p] = o
	}
	return o
}

// views returns the informers that show what a place's versions are about. s.mu is held.
func (s *Share) views(p place) []*informer {
	var out []*informer
	for _, inf := range s.informers {
		if inf.running && s.versionKey(inf.kind, inf.role) == p.key {
			out = append(out, inf)
		}
	}
	return out
}

// shows says that an informer's store does not have the object any more that was deleted.
func (i *informer) shows(name cache.ObjectName, uid types.UID) bool {
	about := i.stored(name)
	return about == nil || about.GetUID() != uid
}

// settleShown forgets the deletions that all informers have shown: their versions count among those that they saw.
// Informers of whole kinds note none, so that theirs is noted. s.mu is held.
func (s *Share) settleShown(p place, o *owed) {
	views := s.views(p)
	for name, uid := range o.gone {
		shown, version := true, ""
		for _, inf := range views {
			shown = shown && inf.shows(name, uid)
			if !inf.sharded {
				if v := inf.GetIndexer().LastStoreSyncResourceVersion(); version == "" || resourceversion.Compare(v, version) < 0 {
					version = v
				}
			}
		}
		if !shown {
			continue
		}
		delete(o.gone, name)
		if version != "" {
			s.note(p.key, p.slot, version)
		}
	}
}

// Unsettled says whether Settle has anything to do for a slot, again where the API server did not answer.
func (s *Share) Unsettled(n slot.Slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.owed {
		if p.slot == n {
			return true
		}
	}
	return false
}

// Settle has Versions tell of everything that this member wrote in the slots, deletions included. It is called when
// nothing is in flight there any more, and returns within settlePatience and settleTimeout: where the API server does
// not answer meanwhile, Versions has the slots' next owner list, until another call succeeds or the slots are released.
func (s *Share) Settle(ctx context.Context, set slot.Set) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience+settleTimeout)
	defer cancel()
	tick := time.NewTicker(settlePeriod)
	defer tick.Stop()
	for patience := time.Now().Add(settlePatience); s.awaited(set) && time.Now().Before(patience); {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	var wg sync.WaitGroup
	for key, proofs := range s.unproved(set) {
		wg.Go(func() {
			version, err := s.proof(ctx, key)
			if err != nil {
				s.log.Info("Cannot read the version of a kind; the next owner of slots will list it", "kind", key, "error", err.Error())
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range proofs {
				if err != nil {
					s.unread(p.place)
				} else {
					s.prove(p, version)
				}
			}
		})
	}
	wg.Wait()
}

// awaited says whether deletions in the slots are still to be shown, forgetting those that have been.
func (s *Share) awaited(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := false
	for p, o := range s.owed {
		if !set.Has(p.slot) {
			continue
		}
		s.settleShown(p, o)
		if len(o.gone) == 0 && o.blind == 0 {
			delete(s.owed, p)
		}
		left = left || len(o.gone) > 0
	}
	return left
}

// proof is what a version that is read from now on proves at a place.
type proof struct {
	place
	gone  map[cache.ObjectName]types.UID
	blind uint64
}

// unproved returns what is owed to the slots, by the key of the role.
func (s *Share) unproved(set slot.Set) map[string][]proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string][]proof{}
	for p, o := range s.owed {
		if !set.Has(p.slot) {
			continue
		}
		out[p.key] = append(out[p.key], proof{p, maps.Clone(o.gone), o.blind})
	}
	return out
}

// unread notes that no version could be read for a place to which something is owed. s.mu is held.
func (s *Share) unread(p place) {
	if o := s.owed[p]; o != nil {
		o.unread = true
	}
}

// prove notes a version that is at least that of all that a proof is about. s.mu is held.
func (s *Share) prove(p proof, version string) {
	if version != "" {
		s.note(p.key, p.slot, version)
	}
	o := s.owed[p.place]
	if o == nil {
		return
	}
	for name, uid := range p.gone {
		if o.gone[name] == uid {
			delete(o.gone, name)
		}
	}
	if o.blind == p.blind && len(o.gone) == 0 {
		delete(s.owed, p.place)
	}
}

// proof reads the version that a kind has now; "" where nobody can be behind: it is not served, or no informer of it
// runs.
func (s *Share) proof(ctx context.Context, key string) (string, error) {
	s.mu.Lock()
	views := s.views(place{key: key})
	s.mu.Unlock()
	if len(views) == 0 {
		return "", nil
	}
	inf := views[0]
	version, err := inf.source.readVersion(ctx)
	if inf.source.answered(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("informer of %s: %w", inf.kind, err)
	}
	return version, nil
}

// forgetOwed forgets what is owed to slots that are others' now. s.mu is held.
func (s *Share) forgetOwed(set slot.Set) {
	for p := range s.owed {
		if set.Has(p.slot) {
			delete(s.owed, p)
		}
	}
}
