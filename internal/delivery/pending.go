package delivery

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/pending"
	"github.com/rota-dev/rota/internal/delivery/written"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// KeepWrites has the share keep what this member writes to objects of declared kinds, and of those in informers of
// NewWholeInformer, until all its informers show it, for AwaitWrite and AwaitWrites. Call it before any informer runs.
func (s *Share) KeepWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = &pending.Record{}
}

type unawaitedKey struct{}

// Unawaited returns a context for writes that no read is to wait for.
func Unawaited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unawaitedKey{}, true)
}

// IsUnawaited reports whether ctx is of Unawaited.
func IsUnawaited(ctx context.Context) bool { return ctx.Value(unawaitedKey{}) != nil }

// Unawaited says that no read is to wait for the write.
func (w *Write) Unawaited() {
	if w != nil {
		w.awaited = false
	}
}

// Awaited reports whether reads wait for the write.
func (w *Write) Awaited() bool { return w != nil && w.awaited }

// await keeps a write for reads. obj is the object as it was written; nil: only its version is known. s.mu is held.
func (w *Write) await(obj metav1.Object, version string) {
	if !w.awaited {
		return
	}
	p := w.pending(obj, w.places)
	p.Version = version
	if obj != nil {
		p.UID = obj.GetUID()
		p.Labels = []labels.Set{obj.GetLabels()}
	}
	if w.counts(p) && w.share.pending.Note(p) {
		go w.share.forgetShown(w.kind)
	}
}

// awaitGone keeps for reads that an object was deleted. answer has what the API server said of it. s.mu is held.
func (w *Write) awaitGone(answer metav1.Object) {
	if !w.awaited {
		return
	}
	places := w.places
	if len(places) == 0 && answer.GetName() == "" {
		places = w.by // as for anywhere: no cache has shown the object, and the answer does not tell its owner
	}
	p := w.pending(answer, places)
	p.Gone, p.Version = answer.GetUID(), answer.GetResourceVersion()
	if p.Gone == "" {
		p.Gone = w.uid
	}
	for _, obj := range w.stored {
		if obj.GetUID() == p.Gone && resourceversion.Compare(p.Version, obj.GetResourceVersion()) < 0 {
			p.Version = obj.GetResourceVersion()
		}
	}
	if w.counts(p) && w.share.pending.Delete(p) {
		go w.share.forgetShown(w.kind)
	}
}

// pending returns the write of an object in its places.
func (w *Write) pending(obj metav1.Object, places []written.Place) pending.Write {
	p := pending.Write{Kind: w.kind, Name: w.name.AsNamespacedName(), Places: places}
	if obj != nil && obj.GetName() != "" {
		p.Name.Namespace, p.Name.Name = obj.GetNamespace(), obj.GetName()
		p.Places = distinct(append(w.share.places(w.kind, w.share.Role(w.kind), obj), places...))
	}
	return p
}

// counts reports whether an informer of this member may have to show the write. One that gains the object's slot later
// lists it after the write. The places of a child that no informer has shown yet are those of an earlier write. s.mu is
// held.
func (w *Write) counts(p pending.Write) bool {
	return p.Name.Name != "" && (w.share.runsBeside(w.kind) || w.share.pending.Of(p.Kind, p.Name) != nil ||
		slices.ContainsFunc(p.Places, func(p written.Place) bool { return w.share.Holds(p.Slot) }))
}

// forgetShown forgets the writes of a kind that all its informers show. Reads forget what they have waited for; this is
// for what nobody reads.
func (s *Share) forgetShown(kind schema.GroupKind) {
	defer s.pending.Swept(kind)
	ctx := context.Background() // what is called ends with the informer
	for _, inf := range s.running(kind) {
		writes, err := inf.prove(ctx, s.pending.In(kind, ""), func() bool { return false })
		if err != nil {
			continue
		}
		if past := inf.past(writes); len(past) > 0 && (!inf.sharded || inf.settled(ctx) == nil) {
			inf.noteShown(past)
		}
	}
}

// running returns the informers of a kind that run.
func (s *Share) running(kind schema.GroupKind) []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Concat(s.informers, s.besides),
		func(i *informer) bool { return i.kind != kind || !i.running })
}

// noteShown notes that the informer shows writes that it was past before its store settled.
func (i *informer) noteShown(past []*pending.Write) {
	var caches []pending.Cache
	for _, inf := range i.share.running(i.kind) {
		caches = append(caches, inf)
	}
	for _, w := range past {
		if !i.hasGone(w) {
			i.share.pending.Shown(w, i, caches)
		}
	}
}

// past returns the writes that are not known to be shown although everything of them has been sent to the store.
func (i *informer) past(writes []*pending.Write) []*pending.Write {
	return slices.DeleteFunc(slices.Clone(writes),
		func(w *pending.Write) bool { return w.Blind || w.IsShown(i) || !i.isPast(w) })
}

// settled returns when the store holds what was sent to it before the call.
func (i *informer) settled(ctx context.Context) error {
	_, err := i.source.barrier(ctx, slot.Set{})
	return err
}

// isPast reports whether everything that the informer shows of a write has been sent to its store.
func (i *informer) isPast(w *pending.Write) bool {
	if !i.sharded {
		return resourceversion.Compare(i.Version(), w.Version) >= 0
	}
	places := i.placesOf(w)
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return !slices.ContainsFunc(places, func(n slot.Slot) bool {
		return i.share.Holds(n) && !i.source.core.Reached([]slot.Slot{n}, w.Version)
	})
}

// placesOf returns the slots in which the object of a write counts for the informer.
func (i *informer) placesOf(w *pending.Write) []slot.Slot {
	var out []slot.Slot
	key := i.versionKey()
	for _, p := range w.Places {
		if p.Key == key {
			out = append(out, p.Slot)
		}
	}
	return out
}

// hasGone reports whether the store has an object that was deleted.
func (i *informer) hasGone(w *pending.Write) bool {
	if w.Gone == "" {
		return false
	}
	about := i.stored(cache.NamespacedNameAsObjectName(w.Name))
	return about != nil && about.GetUID() == w.Gone
}

// holds reports whether the store has the object as it was written, or later.
func (i *informer) holds(w *pending.Write) bool {
	if w.Gone != "" || w.Blind {
		return false
	}
	about := i.stored(cache.NamespacedNameAsObjectName(w.Name))
	return about != nil && resourceversion.Compare(about.GetResourceVersion(), w.Version) >= 0
}
