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

// The API server answers most deletions without a version, and answers get lost. The next owner of the slot has to see
// the result of such a write, too. So a deletion is remembered until the informers have shown it: they note every
// version that they see. What is left when the slot is handed over is proved by a version that was read, consistently,
// after the write.

const (
	// settlePatience is how long Settle waits for the informers. The next owner reaches a version that they have seen
	// sooner than one that was read: the latter is that of the whole store, and on a quiet kind the next owner has to
	// list.
	settlePatience = 100 * time.Millisecond
	settlePeriod   = 2 * time.Millisecond
	// settleTimeout bounds the reads of Settle. The slots are shut meanwhile.
	settleTimeout = time.Second
	// owedSweep is the number of deletions from which on those that the informers have shown are removed. owedMax bounds
	// the deletions that are tracked one by one.
	owedSweep = 16
	owedMax   = 1024
)

// owed are writes at a place whose versions are not known, and whose results the next owner has to see.
type owed struct {
	// gone are the UIDs of deleted objects that a store may still have, by name.
	gone  map[cache.ObjectName]types.UID
	sweep int
	// blind counts the writes that informers cannot show.
	blind uint64
	// unread says that the version could not be read. The next owner lists.
	unread bool
}

// Deleted notes the API server's answer to a deletion, which may be that there is no such object. obj is the object
// that it answered with; nil: it answered with a Status.
func (w *Write) Deleted(obj metav1.Object) {
	if w == nil {
		return
	}
	s := w.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj != nil && obj.GetResourceVersion() != "" {
		w.noteAnswer(obj)
		if remains(obj) {
			return // its informers will show that version
		}
	}
	w.deleted()
}

// remains reports whether a deleted object still exists because finalizers or a grace period keep it.
func remains(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && (len(obj.GetFinalizers()) > 0 || grace != nil && *grace > 0)
}

// deleted notes that the object does not exist any more. s.mu is held.
func (w *Write) deleted() {
	for _, p := range w.anywhere() {
		o := w.share.owes(p)
		if w.uid == "" || len(o.gone) >= owedMax {
			o.blind++ // the object may not have come yet, or have gone again
			continue
		}
		o.gone[w.name] = w.uid
		if len(o.gone) > o.sweep {
			w.share.forgetShown(p, o)
			o.sweep = 2*len(o.gone) + owedSweep
		}
	}
}

// Lost notes that the write's version is not known, nor whether the write was made: the answer was lost, could not be
// read, or does not tell. Call it when the request has been given up. The API server may still admit the request; the
// caller has to wait that out.
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

// anywhere returns the places where the object counts, or else those for which the write was made, as far as this
// member holds their slots. Whoever writes on behalf of a duty has it.
func (w *Write) anywhere() []place {
	places := w.places
	if len(places) == 0 {
		places = w.by
	}
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool {
		return !w.share.Holds(p.slot) && int(p.slot) < int(w.share.slots)
	})
}

// owes returns the entry of a place, a new one if needed. s.mu is held.
func (s *Share) owes(p place) *owed {
	o := s.owed[p]
	if o == nil {
		o = &owed{gone: map[cache.ObjectName]types.UID{}, sweep: owedSweep}
		s.owed[p] = o
	}
	return o
}

// views returns the running informers whose versions a place's key stands for. s.mu is held.
func (s *Share) views(p place) []*informer {
	var out []*informer
	for _, inf := range s.besides {
		if inf.running && inf.wholeKey() == p.key {
			out = append(out, inf)
		}
	}
	for _, inf := range s.informers {
		if inf.running && s.versionKey(inf.kind, inf.role) == p.key {
			out = append(out, inf)
		}
	}
	return out
}

// shows reports whether an informer's store no longer has the deleted object.
func (i *informer) shows(name cache.ObjectName, uid types.UID) bool {
	about := i.stored(name)
	return about == nil || about.GetUID() != uid
}

// forgetShown removes the deletions that all informers have shown. Informers of sharded kinds note the versions that
// they see. Those of whole kinds do not, so forgetShown notes theirs. s.mu is held.
func (s *Share) forgetShown(p place, o *owed) {
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

// Unsettled reports whether Settle has anything to do for a slot, also because the API server did not answer before.
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

// Settle makes Versions include everything that this member wrote in the slots, deletions included. Call it when
// nothing is in flight there any more. It returns within 1.1 s. If the API server does not answer by then, Versions
// tells the slots' next owner to list, until another call of Settle succeeds or the slots are released.
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
			version, err := s.readProof(ctx, key)
			if err != nil {
				s.log.Info("Cannot read the version of a kind; the next owner of slots will list it", "kind", key, "error",
					err.Error())
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range proofs {
				if err != nil {
					s.noteUnread(p.place)
				} else {
					s.prove(p, version)
				}
			}
		})
	}
	wg.Wait()
}

// awaited removes deletions that have been shown, and reports whether any are left in the slots.
func (s *Share) awaited(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := false
	for p, o := range s.owed {
		if !set.Has(p.slot) {
			continue
		}
		s.forgetShown(p, o)
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

// unproved returns what is left in the slots, by the key of the role.
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

// noteUnread notes that no version could be read for a place. s.mu is held.
func (s *Share) noteUnread(p place) {
	if o := s.owed[p]; o != nil {
		o.unread = true
	}
}

// prove notes a version that is at least that of everything that a proof is about. s.mu is held.
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

// readProof reads the present version of a kind. It returns "" if nobody can be behind: the kind is not served, or no
// informer of it runs.
func (s *Share) readProof(ctx context.Context, key string) (string, error) {
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

// forgetOwed removes the entries of slots that other members have now. s.mu is held.
func (s *Share) forgetOwed(set slot.Set) {
	for p := range s.owed {
		if set.Has(p.slot) {
			delete(s.owed, p)
		}
	}
}
