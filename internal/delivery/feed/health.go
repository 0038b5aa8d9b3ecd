package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// health is whether the API server answers the requests of an informer, and which slots have to do without its kind or
// with old objects because it does not. flow.mu guards it. Waits look at both, so they are here as well.
type health struct {
	*flow
	ailing [requests]ailing
	absent bool // the API server does not serve the kind
	// hasListed is true once a list of all objects of some slots has succeeded.
	hasListed bool
	// without are slots that were opened although the kind could not be listed. late are those about which handlers have
	// believed nothing since.
	without, late slot.Set
	cached        watchCache
	waiters       map[*waiter]struct{}
	// diagnose looks for the cause of a failure. recheck lists a kind of which slots have objects of the watch cache.
	diagnose func(Request, time.Time)
	recheck  func()
}

// waiter waits for a condition. It is checked, with mu held, whenever something changes.
type waiter struct {
	done  func() bool
	woken chan struct{}
}

// check returns a condition, which is called with mu held.
func (h *health) check(condition func() bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return condition()
}

// look has waits look at their conditions again.
func (h *health) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed()
}

// failing notes that a request failed that was sent at a time. It logs the error at once, or, if the error is ordinary,
// once it has lasted.
func (h *health) failing(r Request, sent time.Time, err error, ordinary bool) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := time.Now()
	h.mu.Lock()
	a := &h.ailing[r]
	if a.err == nil {
		*a = ailing{since: now}
	}
	if a.err == nil {
		time.AfterFunc(diagnoseAfter, func() { h.diagnose(r, now) })
	}
	if a.err == nil && r == RequestList {
		time.AfterFunc(h.inf.share.options.Excuse, h.look) // some waits end
	}
	a.err = err
	if !internal(err) && !apierrors.IsTooManyRequests(err) {
		a.cause = nil
	}
	if sent.After(a.sent) {
		a.sent = sent
	}
	if r == RequestList {
		h.changed() // the kind may be excused by now
	}
	due := a.logged.IsZero() && !ordinary || now.Sub(a.since) >= ailingAfter && now.Sub(a.logged) >= ailingAgain
	if due {
		a.logged = now
	}
	since := a.since
	err = cmp.Or(a.cause, err)
	h.mu.Unlock()
	if due {
		h.inf.share.Log.Error(err, "The API server refuses a request of an informer; trying again. What the informer shows "+
			"may be old until it succeeds",
			"kind", h.inf.Kind.String(), "request", r.String(), "since", since.Format(time.RFC3339))
	}
}

// succeeds notes that a request succeeded. After a list the small one is not needed any more.
func (h *health) succeeds(r Request) {
	h.mu.Lock()
	logged := !h.ailing[r].logged.IsZero()
	h.ailing[r] = ailing{}
	if r == RequestList {
		logged = logged || !h.ailing[requestProbe].logged.IsZero()
		h.ailing[requestProbe] = ailing{}
	}
	h.mu.Unlock()
	if logged {
		h.inf.share.Log.Info("The API server answers a request of an informer again", "kind", h.inf.Kind.String(), "request",
			r.String())
	}
}

// Answered notes whether the upstream serves the kind, as its answer shows. It returns true if it does not.
func (h *health) Answered(err error) bool {
	absent := NotServed(err)
	if err != nil && !absent {
		return false // the error does not show it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.absent == absent {
		return absent
	}
	h.absent = absent
	log := h.inf.share.Log.WithValues("kind", h.inf.Kind.String())
	if absent {
		log.Error(err, "The API server does not serve this kind (any more): is its CustomResourceDefinition installed? "+
			"Until it is, the kind counts as empty; other kinds are not held up")
	} else {
		log.Info("The API server serves this kind again; listing it")
	}
	h.changed()
	return absent
}

// answeredList is answered for a list of the objects of some or all slots that was sent at a time.
func (h *health) answeredList(sent time.Time, err error) (absent bool) {
	return h.answeredAs(RequestList, sent, err)
}

// listed is answeredList for a list of all objects of some slots that has succeeded.
func (h *health) listed() {
	h.answeredList(time.Time{}, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasListed, h.cached.barred = true, slot.Set{}
}

// answeredAs is answered for a list of the given kind.
func (h *health) answeredAs(r Request, sent time.Time, err error) (absent bool) {
	absent = h.Answered(err)
	switch {
	case err == nil:
		h.succeeds(r)
	case !apierrors.IsResourceExpired(err): // a list that expired starts over
		h.failing(r, sent, err, absent) // answered has logged an absent kind
	}
	return absent
}

// vacant reports whether the kind is not served and no reflector reads a stream of it. Then no slot needs to wait for
// it. h.mu is held.
func (h *health) vacant() bool { return h.absent && (h.pump == nil || h.pump.over) }

// Served runs a wait. It ends the wait with nil once the source is vacant, or excused because it cannot list.
func (h *health) Served(ctx context.Context, f func(context.Context) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	go func() {
		if h.wait(inner, func() bool { return h.vacant() || h.excused(begun) }) == nil {
			cancel(errVacant)
		}
	}()
	err := f(inner)
	if errors.Is(context.Cause(inner), errVacant) {
		return nil
	}
	return err
}

// excused reports whether a wait that began then need not go on for the kind: its lists have failed for long, and one
// that was sent since the wait began has failed. One from before does not count, since the kind may not have been
// needed any more. Nor does an API server that is down. One that answers 429 counts: its watch cache refuses one kind
// for as long as it cannot fill itself, and other kinds must not wait for that. h.mu is held.
func (h *health) excused(begun time.Time) bool {
	a := h.ailing[RequestList]
	return a.err != nil && !NotServed(a.err) && !utilnet.IsConnectionRefused(a.err) && !a.sent.Before(begun) &&
		time.Since(a.since) >= h.inf.share.options.Excuse
}

// ownerLeaves reports whether the owner of slot n, one of a set on its way here, is leaving. The slot of orphans, which
// is in no set, has the owners of all.
func (h *health) ownerLeaves(n slot.Slot, set slot.Set) bool {
	leaves := h.inf.share.options.Leaves
	if leaves == nil || set.Has(n) {
		return leaves != nil && leaves(n)
	}
	return !slices.ContainsFunc(set.Slots(), func(other slot.Slot) bool { return !leaves(other) })
}

// goesWithout reports whether slot n was opened without the kind, which still cannot be listed. h.mu is held.
func (h *health) goesWithout(n slot.Slot) bool {
	return h.without.Has(n) && h.ailing[RequestList].err != nil
}

// WithoutAll reports whether all of the slots go without the kind; false for no slots.
func (h *health) WithoutAll(set slot.Set) bool {
	return h.check(func() bool {
		rest := set.Minus(h.without)
		return !set.Empty() && rest.Empty() && h.ailing[RequestList].err != nil
	})
}

// complete reports whether the store holds slot n, or the kind is not served. h.mu is held.
func (h *health) complete(n slot.Slot) bool {
	return h.core.Ready(n) || h.vacant() || h.isCached(n) && h.core.Holds(n)
}

// isCached reports whether slot n has objects of the watch cache while the kind cannot be listed. h.mu is held.
func (h *health) isCached(n slot.Slot) bool {
	return h.cached.slots.Has(n) && h.ailing[RequestList].err != nil
}

// goWithout notes slots that are about to be opened without the kind. Handlers believe nothing about them until they
// are listed. h.mu is held.
func (h *health) goWithout(set slot.Set) {
	set = set.Minus(h.without)
	if set.Empty() {
		return
	}
	h.without, h.late = h.without.Union(set), h.late.Union(set)
	for _, n := range set.Slots() {
		h.inf.arrived[n].Store(never)
	}
	a := h.ailing[RequestList]
	h.inf.share.Log.Error(a.err, "Slots open although a kind cannot be listed: its controllers, and those of its owners, "+
		"do not work on them until it can",
		"kind", h.inf.Kind.String(), "since", a.since.Format(time.RFC3339), "slots", set.String())
}

// noneLeft clears the slots that go without the kind if the kind turns out not to be served. h.mu is held.
func (h *health) noneLeft() {
	if !h.without.Empty() && h.vacant() {
		h.without = slot.Set{}
		go h.inf.share.options.Complete(h.inf, slot.Set{})
	}
}

// fromCache is a list that the watch cache answers.
func (h *health) fromCache() sharding.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	version := h.core.Position()
	if resourceversion.Compare(version, h.cached.least) < 0 {
		version = h.cached.least
	}
	return sharding.Request{ListOptions: metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
}

// mayUseCache reports whether to ask the watch cache after a list of the slots failed: the API server itself has
// failed, and the cache has not answered for all of them before.
func (h *health) mayUseCache(set slot.Set, err error) bool {
	if !internal(err) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	rest, barred := set.Minus(h.cached.slots), set.Intersect(h.cached.barred)
	return !rest.Empty() && barred.Empty() && h.core.Position() != ""
}

// usesCache notes that the objects of slots come from a list of the watch cache at a version. h.mu is held.
func (h *health) usesCache(set slot.Set, version string) {
	c := &h.cached
	if c.slots.Empty() || resourceversion.Compare(version, c.at) < 0 {
		c.at = version
	}
	if c.slots.Empty() {
		c.since = time.Now()
	}
	fresh := set.Minus(c.slots)
	c.slots = c.slots.Union(set)
	if !c.rechecks {
		c.rechecks = true
		time.AfterFunc(recheckAfter, h.recheck)
	}
	if !fresh.Empty() {
		h.inf.share.Log.Error(h.ailing[RequestList].err, "A kind cannot be listed: slots have its objects from the API "+
			"server's watch cache, which may lack the latest writes of the slots' former owner", "kind", h.inf.Kind.String(),
			"slots", fresh.String())
	}
}

// leavesCache notes that the objects of slots do not come from the watch cache, or not any more.
func (h *health) leavesCache(set slot.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cached.slots = h.cached.slots.Minus(set)
}

// Outdates reports whether what slots have of the watch cache is old. Then they have to be listed again.
func (h *health) Outdates(set slot.Set) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cached.slots.Empty() || time.Since(h.cached.since) <= cacheFor {
		return false
	}
	h.cached.slots = h.cached.slots.Minus(set)
	return true
}

// HandedOn notes that a former owner handed slots on at a version. Objects of the watch cache must not be older.
func (h *health) HandedOn(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if resourceversion.Compare(h.cached.least, version) < 0 {
		h.cached.least = version
	}
	if resourceversion.Compare(h.cached.at, version) < 0 {
		h.cached.slots = slot.Set{}
	}
}

// Distrusts bars the watch cache for slots until the kind can be listed.
func (h *health) Distrusts(set slot.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cached.slots, h.cached.barred = h.cached.slots.Minus(set), h.cached.barred.Union(set)
}

// StandsStill reports whether all of the slots have their objects from the watch cache while the kind cannot be listed.
// Such a cache does not reach a later version. It is false for no slots.
func (h *health) StandsStill(set slot.Set) bool {
	return h.check(func() bool {
		rest := set.Minus(h.cached.slots)
		return !set.Empty() && rest.Empty() && h.ailing[RequestList].err != nil
	})
}

// wait waits until a condition on the source is true. done is called with h.mu held.
func (h *health) wait(ctx context.Context, done func() bool) error {
	h.mu.Lock()
	if done() {
		h.mu.Unlock()
		return nil
	}
	w := &waiter{done: done, woken: make(chan struct{})}
	h.waiters[w] = struct{}{}
	h.mu.Unlock()
	var err error
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.done:
		err = ErrStopped
	}
	h.mu.Lock()
	delete(h.waiters, w)
	h.mu.Unlock()
	return err
}

// changed wakes the waiters whose condition holds. h.mu is held.
func (h *health) changed() {
	h.noneLeft()
	for w := range h.waiters {
		if w.done() {
			close(w.woken)
			delete(h.waiters, w)
		}
	}
}

// failures returns the requests that fail.
func (h *health) failures() (out []Failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, a := range h.ailing {
		if a.err == nil {
			continue
		}
		f := Failure{Kind: h.inf.Kind, Owned: h.inf.Role.Owned(), Request: Request(r), Since: a.since,
			Err: cmp.Or(a.cause, a.err)}
		if f.Request == RequestList {
			f.Without = h.without
		}
		if f.Request == requestProbe {
			if h.ailing[RequestList].err != nil {
				continue
			}
			f.Request = RequestList
		}
		out = append(out, f)
	}
	return out
}

// failure returns the recent failures of a kind of request.
func (h *health) failure(r Request) ailing {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ailing[r]
}

// found notes the cause of failures that began then, or nil if none was found. It returns false if they have ended.
func (h *health) found(r Request, since time.Time, cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ailing[r].since.Equal(since) || h.ailing[r].err == nil {
		return false
	}
	h.ailing[r].cause = cause
	return true
}

// Gaps returns the slots that were opened without the kind, and those about which handlers have believed nothing since.
func (h *health) Gaps() (without, late slot.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.without, h.late
}

// catchesUp returns the slots of the set that were late and are complete now. mu is held.
func (h *health) catchesUp(set slot.Set) slot.Set {
	late := set.Intersect(h.late)
	for _, n := range late.Slots() {
		if !h.complete(n) {
			late.Remove(n)
		}
	}
	h.without, h.late = h.without.Minus(late), h.late.Minus(late)
	return late
}

// Released forgets slots that are not this member's any more.
func (h *health) Released(set slot.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.without, h.late = h.without.Minus(set), h.late.Minus(set)
	h.cached.slots = h.cached.slots.Minus(set)
	h.changed()
}

// rechecks returns the held slots that have objects of the watch cache. If there are none, no more rechecks follow.
func (h *health) rechecks(running bool) slot.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.cached.slots.Intersect(h.inf.held())
	if h.cached.rechecks = !set.Empty() && running; !h.cached.rechecks {
		return slot.Set{}
	}
	return set
}

// rechecked notes how a recheck ended. Another one follows if it failed.
func (h *health) rechecked(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cached.rechecks = err != nil
	if err != nil {
		time.AfterFunc(recheckAfter, h.recheck)
	}
}
