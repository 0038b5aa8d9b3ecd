package feed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const (
	// readPatience is how long a read waits for a write in the stream before it asks the API server for a bookmark. The
	// watch shows a write within milliseconds, unless it lags, or never shows the write because the informer's selectors
	// exclude the object in a way that only the API server can evaluate.
	readPatience = 2 * time.Second
	// readRespite is how long no read asks for another bookmark. The watch is opened anew for one, so that what comes
	// late comes later still.
	readRespite = 30 * time.Second
	// readPeriod is the time between two looks for what the position does not show. After readHurry it is readLater.
	readPeriod = 2 * time.Millisecond
	readHurry  = 100 * time.Millisecond
	readLater  = 20 * time.Millisecond
)

// View selects which informers of a kind answer a read.
type View uint8

const (
	// ViewUnknown is none.
	ViewUnknown View = iota
	// ViewShare is of the informers of NewInformer.
	ViewShare
	// ViewOwned is for informers of NewOwnedInformer.
	ViewOwned
	// ViewWhole is for informers of NewWholeInformer.
	ViewWhole
)

// String returns the view in lower case.
func (v View) String() string {
	if v > ViewWhole {
		return fmt.Sprintf("View(%d)", uint8(v))
	}
	return [...]string{"unknown", "share", "owned", "whole"}[v]
}

// OwnReads has reads of a Share's informers wait for what this member wrote.
type OwnReads struct{ *Common }

// NewOwnReads returns the OwnReads of a Share's informers.
func NewOwnReads(c *Common) *OwnReads { return &OwnReads{c} }

// AwaitWrite returns when the informers of a view show what this member wrote to an object before the call, as far as
// they ever will:
//
//   - An informer that holds a share shows an object while its slot is open. AwaitWrite does not wait for writes in
//     other slots, and stops waiting when the slot is shut.
//   - An informer does not show what its user's selectors leave out, nor a kind that is not served. Slots that were
//     opened without a kind that cannot be listed do not show it either; see Lacks.
//   - Reads do not wait for an informer that does not run.
//
// If the API server refuses the watch or the lists of a slot that was open before, AwaitWrite waits until they succeed:
// what the informer shows is old. KeepWrites must have been called; of kinds that are neither declared nor in an
// informer of NewWholeInformer nothing is kept. It returns an error if ctx ends.
func (s *OwnReads) AwaitWrite(ctx context.Context, kind schema.GroupKind, name types.NamespacedName, view View) error {
	w := s.Reads.Of(kind, name)
	if w == nil {
		return nil
	}
	return s.awaitWrites(ctx, kind, []*ledger.Unshown{w}, view)
}

// AwaitWrites is AwaitWrite for all objects of a kind in a namespace; "" stands for all namespaces.
func (s *OwnReads) AwaitWrites(ctx context.Context, kind schema.GroupKind, namespace string, view View) error {
	writes := s.Reads.In(kind, namespace)
	if len(writes) == 0 {
		return nil
	}
	return s.awaitWrites(ctx, kind, writes, view)
}

func (s *OwnReads) awaitWrites(ctx context.Context, kind schema.GroupKind, writes []*ledger.Unshown, view View) error {
	for _, inf := range s.running(kind) {
		if inf.view() != view {
			continue
		}
		err := inf.Reads.awaitWrites(ctx, slices.Clone(writes))
		if err == nil || errors.Is(err, ErrStopped) {
			continue
		}
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return fmt.Errorf("waiting until the cache of %s shows what this member wrote: %w", kind, err)
	}
	return nil
}

func (p *placement) view() View {
	switch {
	case p.Apart:
		return ViewWhole
	case p.ByOwner:
		return ViewOwned
	default:
		return ViewShare
	}
}

// Reader has reads of an informer wait for what this member wrote.
type Reader struct {
	*Informer
	selected atomic.Pointer[selected] // see selection
}

// awaitWrites returns when the informer shows the writes, as far as it ever will.
func (r *Reader) awaitWrites(ctx context.Context, writes []*ledger.Unshown) error {
	var held []*ledger.Unshown
	writes = slices.DeleteFunc(writes, func(w *ledger.Unshown) bool {
		if !w.IsShown(r.Informer) && r.holds(w) {
			held = append(held, w)
			return true
		}
		return w.IsShown(r.Informer) || !r.willShow(w)
	})
	if len(held) > 0 {
		r.noteShown(held)
	}
	if len(writes) == 0 {
		return nil
	}
	writes, err := r.prove(ctx, writes, func() bool { return slices.ContainsFunc(writes, r.willShow) })
	if err != nil {
		return err
	}
	if r.Sharded {
		return r.awaitStream(ctx, writes)
	}
	return r.awaitStore(ctx, writes)
}

// openPlaces returns the slots of a write in which reads wait.
func (r *Reader) openPlaces(w *ledger.Unshown) []slot.Slot {
	open := r.share.awaited.Load()
	return slices.DeleteFunc(r.placesOf(w), func(n slot.Slot) bool { return !open.Has(n) })
}

// prove gives every write a version past which the informer shows it, for as long as that is needed. If no version is
// available, it returns no writes.
func (r *Reader) prove(ctx context.Context, writes []*ledger.Unshown, needed func() bool) ([]*ledger.Unshown, error) {
	if !slices.ContainsFunc(writes, func(w *ledger.Unshown) bool { return w.Blind }) {
		return writes, nil
	}
	version, err := r.presentWhile(ctx, needed)
	if version == "" {
		return nil, err
	}
	var out []*ledger.Unshown
	for _, w := range writes {
		if w.Blind {
			w = r.share.Reads.Prove(w, version)
		}
		if w != nil {
			out = append(out, w)
		}
	}
	return out, nil
}

// presentWhile is lister.Present, which it calls again after an error while the version is needed. The version is empty
// if it is not needed any more or the kind is not served. The error is ErrStopped or ctx's. It wraps no error of the
// list: a reader who gets a Forbidden or a NotFound would take it for the answer to the read.
func (r *Reader) presentWhile(ctx context.Context, needed func() bool) (version string, err error) {
	src := r.Source
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		version, err = src.Present(ctx)
		switch {
		case err == nil:
			return version, nil
		case src.sharded():
			src.Answered(err)
		}
		if NotServed(err) || !needed() {
			return "", nil
		}
		select {
		case <-time.After(backoff):
		case <-src.done:
			return "", ErrStopped
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(err, cause) {
				return "", cause
			}
			return "", fmt.Errorf("%w; the last list of the kind: %v", context.Cause(ctx), err) //nolint:errorlint // see above
		}
	}
}

// awaitStream waits until the stream has passed the writes in their slots, the store holds what it sent, and deleted
// objects are gone.
func (r *Reader) awaitStream(ctx context.Context, writes []*ledger.Unshown) error {
	upTo := map[slot.Slot]string{}
	for _, w := range writes {
		for _, n := range r.openPlaces(w) {
			if resourceversion.Compare(upTo[n], w.Version) < 0 {
				upTo[n] = w.Version
			}
		}
	}
	src := r.Source
	behind := func() bool { // src.mu is held
		for n, version := range upTo {
			if r.isAwaited(n) && !src.core.Reached([]slot.Slot{n}, version) {
				return true
			}
		}
		return false
	}
	if err := src.awaitVersions(ctx, func() bool { return !behind() }); err != nil {
		return err
	}
	past := r.past(writes)
	if slices.ContainsFunc(past, func(w *ledger.Unshown) bool { return !r.holds(w) }) {
		if err := r.settledWhile(ctx, slices.Collect(maps.Keys(upTo))); err != nil {
			return err
		}
	}
	err := poll(ctx, src.done, func() bool {
		return !slices.ContainsFunc(writes, func(w *ledger.Unshown) bool { return r.hasGone(w) && r.isAwaitedAnywhere(w) })
	})
	if err == nil {
		r.noteShown(past)
	}
	return err
}

// isAwaited reports whether reads wait for changes in a slot that the informer does not show yet. flow.mu is held.
func (r *Reader) isAwaited(n slot.Slot) bool {
	return r.share.awaited.Load().Has(n) && !r.Source.health.absent && !r.Source.goesWithout(n)
}

// isAwaitedAnywhere reports whether reads wait in any of the slots of a write.
func (r *Reader) isAwaitedAnywhere(w *ledger.Unshown) bool {
	places := r.placesOf(w)
	return r.Source.check(func() bool { return slices.ContainsFunc(places, r.isAwaited) })
}

// settledWhile is settled for as long as reads wait for one of the slots. Then it returns nil.
func (r *Reader) settledWhile(ctx context.Context, slots []slot.Slot) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if r.Source.wait(inner, func() bool { return !slices.ContainsFunc(slots, r.isAwaited) }) == nil {
			cancel(errUnawaited)
		}
	}()
	if err := r.Settled(inner); !errors.Is(err, errUnawaited) {
		return err
	}
	return nil
}

// errUnawaited ends waits for slots that were shut.
var errUnawaited = errors.New("no read waits for it any more")

// awaitStore waits until the store of an informer of all objects shows the writes, or the kind is not served.
func (r *Reader) awaitStore(ctx context.Context, writes []*ledger.Unshown) error {
	err := poll(ctx, r.Source.done, func() bool {
		return NotServed(r.Source.listError()) || !slices.ContainsFunc(writes, func(w *ledger.Unshown) bool {
			return !r.holds(w) && (!r.isPast(w) || r.hasGone(w)) && r.willShow(w)
		})
	})
	if err == nil {
		r.noteShown(r.past(writes))
	}
	return err
}

// poll returns when a condition holds. The error is ErrStopped when done is closed, or ctx's cause.
func poll(ctx context.Context, done <-chan struct{}, holds func() bool) error {
	if holds() {
		return nil
	}
	tick := time.NewTicker(readPeriod)
	defer tick.Stop()
	begun := time.Now()
	for {
		select {
		case now := <-tick.C:
			if holds() {
				return nil
			}
			if now.Sub(begun) > readHurry {
				tick.Reset(readLater)
			}
		case <-done:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitVersions waits until a condition on the stream holds. The condition is called with flow.mu held. If that takes
// long, awaitVersions asks for a bookmark: the version may belong to an object that this stream does not bring.
func (s *Source) awaitVersions(ctx context.Context, holds func() bool) error {
	for patience := readPatience; ; {
		soon, cancel := context.WithTimeout(ctx, patience)
		err := s.wait(soon, holds)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrStopped) {
			return err
		}
		if patience = s.askForRead(time.Now()); patience > 0 {
			continue // another read has asked
		}
		patience = readRespite
		_, err = s.Present(ctx) // so that the API server has a version to send; see chase
		if err != nil {
			s.inf.share.Log.V(1).Info("List failed", "kind", s.inf.Kind, "error", err.Error())
		}
		if !s.Answered(err) {
			s.nudge()
		}
	}
}

// WakeReads has reads look again whether their slots are open.
func (s *OwnReads) WakeReads() {
	if s.Reads == nil {
		return
	}
	for _, inf := range s.Active() {
		inf.Source.look()
	}
}
