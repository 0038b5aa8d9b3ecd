package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/pending"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const (
	// readPatience is how long a read waits for a write in the stream before it asks the API server for a bookmark. The
	// watch shows a write within milliseconds, unless it lags, or never shows the write: then the object is not what the
	// informer selects, by something that only the API server can tell.
	readPatience = 2 * time.Second
	// readRespite is how long no read asks for another bookmark. The watch is opened anew for one, so that what comes
	// late comes later still.
	readRespite = 30 * time.Second
	// readPeriod is the time between two looks for what the position does not tell.
	readPeriod = 2 * time.Millisecond
)

// View says which informers of a kind answer a read.
type View uint8

const (
	// ViewUnknown is none.
	ViewUnknown View = iota
	// ViewShare is of the informers of NewInformer.
	ViewShare
	// ViewOwned is of those of NewOwnedInformer.
	ViewOwned
	// ViewWhole is of those of NewWholeInformer.
	ViewWhole
)

// AwaitWrite returns when the informers of a view show what this member wrote to an object before the call, as far as
// they ever will:
//
//   - An informer that holds a share shows an object while its slot is open. AwaitWrite does not wait for writes in other
//     slots, and stops waiting when the slot is shut.
//   - An informer does not show what its user's selectors leave out, nor a kind that cannot be listed or is not served.
//   - Nobody waits for an informer that does not run.
//
// KeepWrites must have been called. The error says that ctx ended, or that the API server did not tell a version that was
// needed: of a deletion whose object the informers had not shown by then.
func (s *Share) AwaitWrite(ctx context.Context, kind schema.GroupKind, name types.NamespacedName, view View) error {
	w := s.pending.Of(kind, name)
	if w == nil {
		return nil
	}
	return s.awaitWrites(ctx, kind, []*pending.Write{w}, view)
}

// AwaitWrites is AwaitWrite for all objects of a kind in a namespace; "" stands for all namespaces.
func (s *Share) AwaitWrites(ctx context.Context, kind schema.GroupKind, namespace string, view View) error {
	writes := s.pending.In(kind, namespace)
	if len(writes) == 0 {
		return nil
	}
	return s.awaitWrites(ctx, kind, writes, view)
}

func (s *Share) awaitWrites(ctx context.Context, kind schema.GroupKind, writes []*pending.Write, view View) error {
	for _, inf := range s.running(kind) {
		if inf.view() != view {
			continue
		}
		err := inf.awaitWrites(ctx, slices.Clone(writes))
		if err == nil || errors.Is(err, errStopped) {
			continue
		}
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return fmt.Errorf("waiting until the cache of %s shows what this member wrote: %w", kind, err)
	}
	return nil
}

func (i *informer) view() View {
	switch {
	case i.apart:
		return ViewWhole
	case i.byOwner:
		return ViewOwned
	default:
		return ViewShare
	}
}

// awaitWrites returns when the informer shows the writes, as far as it ever will.
func (i *informer) awaitWrites(ctx context.Context, writes []*pending.Write) error {
	writes = slices.DeleteFunc(writes, func(w *pending.Write) bool { return w.IsShown(i) || i.holds(w) || !i.willShow(w) })
	if len(writes) == 0 {
		return nil
	}
	writes, err := i.prove(ctx, writes)
	if err != nil {
		return err
	}
	if i.sharded {
		return i.awaitStream(ctx, writes)
	}
	return i.awaitStore(ctx, writes)
}

// willShow reports whether the informer will show a write, or does so.
func (i *informer) willShow(w *pending.Write) bool {
	if i.sharded && len(i.openPlaces(w)) == 0 {
		return false
	}
	asked := i.source.upstream.asked.Load()
	if asked == nil {
		return true
	}
	if asked.Namespace != "" && asked.Namespace != w.Name.Namespace {
		return false
	}
	return selects(asked.Selectors, w) || i.stored(cache.NamespacedNameAsObjectName(w.Name)) != nil
}

// openPlaces returns the slots among those of a write in which handlers hear of the object.
func (i *informer) openPlaces(w *pending.Write) []slot.Slot {
	open := i.share.open.Load()
	return slices.DeleteFunc(i.placesOf(w), func(n slot.Slot) bool { return !open.Has(n) })
}

// selects reports whether a user's selectors may select the object of a write, as it was by one of them.
func selects(by sharding.Selectors, w *pending.Write) bool {
	if byField, err := fields.ParseSelector(by.Field); err == nil {
		about := fields.Set{"metadata.name": w.Name.Name, "metadata.namespace": w.Name.Namespace}
		for _, r := range byField.Requirements() {
			if one := fields.OneTermEqualSelector(r.Field, r.Value); about.Has(r.Field) &&
				one.Matches(about) != (r.Operator != "!=") {
				return false
			}
		}
	}
	byLabel, err := labels.Parse(by.Label)
	return err != nil || w.Labels == nil ||
		slices.ContainsFunc(w.Labels, func(l labels.Set) bool { return byLabel.Matches(l) })
}

// prove has every write tell a version past which the informer shows it.
func (i *informer) prove(ctx context.Context, writes []*pending.Write) ([]*pending.Write, error) {
	if !slices.ContainsFunc(writes, func(w *pending.Write) bool { return w.Blind }) {
		return writes, nil
	}
	version, err := i.source.present(ctx)
	if err != nil {
		return nil, err
	}
	var out []*pending.Write
	for _, w := range writes {
		if w.Blind {
			w = i.share.pending.Prove(w, version)
		}
		if w != nil {
			out = append(out, w)
		}
	}
	return out, nil
}

// awaitStream waits until the stream has passed the writes in their slots, the store holds what it sent, and deleted
// objects are gone.
func (i *informer) awaitStream(ctx context.Context, writes []*pending.Write) error {
	upTo := map[slot.Slot]string{}
	for _, w := range writes {
		for _, n := range i.openPlaces(w) {
			if resourceversion.Compare(upTo[n], w.Version) < 0 {
				upTo[n] = w.Version
			}
		}
	}
	src := i.source
	behind := func() bool { // src.mu is held
		for n, version := range upTo {
			if i.isAwaited(n) && !src.core.Reached([]slot.Slot{n}, version) {
				return true
			}
		}
		return false
	}
	if err := src.awaitVersions(ctx, func() bool { return !behind() }); err != nil {
		return err
	}
	past := i.past(writes)
	if slices.ContainsFunc(past, func(w *pending.Write) bool { return !i.holds(w) }) {
		if err := i.settledWhile(ctx, slices.Collect(maps.Keys(upTo))); err != nil {
			return err
		}
	}
	err := poll(ctx, src.done, func() bool {
		return !slices.ContainsFunc(writes, func(w *pending.Write) bool { return i.hasGone(w) && len(i.openPlaces(w)) > 0 })
	})
	if err == nil {
		i.noteShown(past)
	}
	return err
}

// isAwaited reports whether reads wait for what the informer has yet to show in a slot. source.mu is held.
func (i *informer) isAwaited(n slot.Slot) bool {
	return i.share.open.Load().Has(n) && !i.source.vacant() && !i.source.goesWithout(n)
}

// settledWhile is settled for as long as reads wait for one of the slots. Then it returns nil.
func (i *informer) settledWhile(ctx context.Context, slots []slot.Slot) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if i.source.wait(inner, func() bool { return !slices.ContainsFunc(slots, i.isAwaited) }) == nil {
			cancel(errUnawaited)
		}
	}()
	if err := i.settled(inner); !errors.Is(err, errUnawaited) {
		return err
	}
	return nil
}

// errUnawaited ends waits for slots that were shut.
var errUnawaited = errors.New("no read waits for it any more")

// awaitStore waits until the store of an informer of all objects shows the writes.
func (i *informer) awaitStore(ctx context.Context, writes []*pending.Write) error {
	err := poll(ctx, i.source.done, func() bool {
		return !i.runs() || !slices.ContainsFunc(writes, func(w *pending.Write) bool {
			return !i.holds(w) && (!i.isPast(w) || i.hasGone(w)) && i.willShow(w)
		})
	})
	if err == nil {
		i.noteShown(i.past(writes))
	}
	return err
}

func (i *informer) runs() bool {
	i.share.mu.Lock()
	defer i.share.mu.Unlock()
	return i.running
}

// poll returns when a condition holds. The error is errStopped when done is closed, or ctx's cause.
func poll(ctx context.Context, done <-chan struct{}, holds func() bool) error {
	if holds() {
		return nil
	}
	tick := time.NewTicker(readPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if holds() {
				return nil
			}
		case <-done:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitVersions waits until a condition on the stream holds, which is called with s.mu held. If that takes long, it asks
// for a bookmark: the version may be that of an object that this stream does not bring.
func (s *source) awaitVersions(ctx context.Context, holds func() bool) error {
	for patience := readPatience; ; patience = readRespite {
		soon, cancel := context.WithTimeout(ctx, patience)
		err := s.wait(soon, holds)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, errStopped) {
			return err
		}
		if !s.mayAskForRead() {
			continue
		}
		if _, err := s.present(ctx); err != nil { // so that the API server knows of a version to tell; see chase
			s.inf.share.log.V(1).Info("List failed", "kind", s.inf.kind, "error", err.Error())
		}
		s.nudge()
	}
}

// mayAskForRead reports whether a read may ask for a bookmark now.
func (s *source) mayAskForRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.asked) < readRespite {
		return false
	}
	s.asked = now
	return true
}

// wakeReads has reads look again whether their slots are open.
func (s *Share) wakeReads() {
	if s.pending == nil {
		return
	}
	for _, inf := range s.active() {
		inf.source.mu.Lock()
		inf.source.changed()
		inf.source.mu.Unlock()
	}
}
