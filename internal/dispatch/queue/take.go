package queue

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors for errors.Is.
var (
	// ErrKind: the queue has no such kind.
	ErrKind = errors.New("this dispatcher has no such kind")
	// ErrTake: there is no such take, because it was done, it expired, or its slot moved to another member.
	ErrTake = errors.New("the take has ended")
	// ErrWorker: the take is another worker's.
	ErrWorker = errors.New("the take is another worker's")
)

// Ask is a worker's request for keys: a poll or a stream.
type Ask struct {
	// ID names the Ask. It must be new.
	ID     uint64
	Worker string
	// Kinds are the wanted kinds. Empty means all.
	Kinds []string
	// Max is how many keys the worker wants. For a stream it is the credit, which More adds to. It must be above 0 for a
	// poll, and not negative for a stream.
	Max int
	// Until is when a poll without keys is answered. A stream ignores it.
	Until time.Duration
	// Length is the requested length of the takes, limited by Config.MinLength and MaxLength. 0 means Config.Length.
	Length time.Duration
	// Affine asks to give the worker the same keys again.
	Affine bool
	// Stream hands out keys until Cancel. A poll ends with the first ones.
	Stream bool
}

// ask is an Ask in progress.
type ask struct {
	Ask
	kinds  []*kind
	shares []*share // its worker's, by kind; nil if it is not affine
	place  int
	over   bool
}

// waiter is an ask that waits for keys of a kind. own is its worker's share, or nil if it is not affine.
type waiter struct {
	*ask
	own *share
}

func (a *ask) when() time.Duration {
	if a.Stream {
		return never
	}
	return a.Until
}
func (a *ask) put(place int) { a.place = place }
func (a *ask) at() int       { return a.place }

// Ask asks for keys. Given answers it.
func (q *Queue) Ask(now time.Duration, in Ask) error {
	if in.Max < 0 || in.Max == 0 && !in.Stream {
		return fmt.Errorf("%d keys: ask for at least 1", in.Max)
	}
	if q.asks[in.ID] != nil {
		return fmt.Errorf("ask %d: there is one already", in.ID)
	}
	a := &ask{Ask: in, kinds: q.kinds, place: -1}
	if len(in.Kinds) > 0 {
		a.kinds = nil
		for _, name := range in.Kinds {
			k := q.byName[name]
			if k == nil {
				return fmt.Errorf("%w: %s", ErrKind, name)
			}
			if !slices.Contains(a.kinds, k) {
				a.kinds = append(a.kinds, k)
			}
		}
	}
	if a.Length == 0 {
		a.Length = q.cfg.Length
	}
	a.Length = min(max(a.Length, q.cfg.MinLength), q.cfg.MaxLength)
	q.tick(now)
	q.asks[a.ID] = a
	q.ends.add(a)
	if a.Affine = a.Affine && q.mayJoin(a); a.Affine {
		q.joins(now, a)
	}
	for i, k := range a.kinds {
		w := waiter{ask: a}
		if a.Affine {
			w.own = a.shares[i]
		}
		k.waiting = append(k.waiting, w)
		k.stirred = true
	}
	a.want(0, a.Max)
	return nil
}

// want updates how many asks want keys when an ask's room changes.
func (a *ask) want(before, now int) {
	a.Max = now
	change := min(now, 1) - min(before, 1)
	for _, k := range a.kinds {
		k.hungry += change
	}
}

// More gives a stream credit for n more keys.
func (q *Queue) More(now time.Duration, id uint64, n int) error {
	a := q.asks[id]
	if a == nil || !a.Stream || n < 1 {
		return fmt.Errorf("stream %d, %d more keys: there is no such stream, or no such number", id, n)
	}
	q.tick(now)
	a.want(a.Max, a.Max+n)
	for _, k := range a.kinds {
		k.stirred = true
	}
	return nil
}

// Claim reserves room for up to n keys that an Ask gets from another queue, and returns for how many. A poll ends with
// that, without an answer. A stream's credit is reduced. The result is 0 if the Ask has been answered or has ended.
func (q *Queue) Claim(now time.Duration, id uint64, n int) int {
	q.tick(now)
	a := q.asks[id]
	if a == nil || n < 1 {
		return 0
	}
	n = min(n, a.Max)
	if a.Stream {
		a.want(a.Max, a.Max-n)
	} else {
		q.finish(now, a)
	}
	return n
}

// Cancel ends an Ask without an answer. Its takes continue.
func (q *Queue) Cancel(now time.Duration, id uint64) {
	q.tick(now)
	if a := q.asks[id]; a != nil {
		q.finish(now, a)
	}
}

// finish ends an Ask.
func (q *Queue) finish(now time.Duration, a *ask) {
	a.over = true
	a.want(a.Max, 0)
	delete(q.asks, a.ID)
	q.ends.remove(a)
	if a.Affine {
		w := q.workers[a.Worker]
		w.seen = now
		w.asks--
	}
	for _, k := range a.kinds {
		if k.over++; !q.matching {
			k.tidy()
		}
	}
}

// tidy removes ended asks once there are many.
func (k *kind) tidy() {
	if k.over > 8 && k.over > len(k.waiting)/2 {
		k.waiting = slices.DeleteFunc(k.waiting, func(w waiter) bool { return w.over })
		k.over = 0
	}
}

// match hands out ready keys to waiting asks.
func (q *Queue) match(now time.Duration) {
	if q.late = q.deadline-now < q.cfg.MinLength; q.late {
		return
	}
	q.matching = true
	defer func() { q.matching = false }()
	for _, k := range q.kinds {
		if !k.stirred && k.patience(q.cfg.Patience) > now {
			continue
		}
		k.stirred = false
		for _, w := range k.waiting {
			if k.ready == 0 || k.full() {
				break
			}
			if !w.over && w.Max > 0 && (k.forAny(now, q.cfg.Patience) || w.own != nil && w.own.ready > 0) {
				q.serve(now, w.ask)
			}
		}
		k.tidy()
	}
}

// serve hands out keys to one Ask.
func (q *Queue) serve(now time.Duration, a *ask) {
	var takes []Take
	for empty := 0; a.Max > 0 && empty < len(a.kinds); {
		q.turn++
		i := q.turn % len(a.kinds)
		var own *share
		if a.Affine {
			own = a.shares[i]
		}
		e := a.kinds[i].next(now, own, q.cfg.Patience)
		if e == nil {
			empty++
			continue
		}
		empty = 0
		takes = append(takes, q.hand(now, a, e))
		a.want(a.Max, a.Max-1)
	}
	if len(takes) == 0 {
		return
	}
	if !a.Stream {
		q.finish(now, a)
	}
	q.given = append(q.given, Given{Ask: a.ID, Takes: takes, Over: !a.Stream})
}

// hand makes a take of a key that was removed from its line.
func (q *Queue) hand(now time.Duration, a *ask, e *entry) Take {
	q.lastTake++
	s := &q.slots[e.slot]
	t := &taken{entry: e, place: -1, Take: Take{
		ID: q.lastTake, Key: e.key(), UID: e.uid, Version: e.version, Gone: e.gone, Slot: e.slot, Epoch: s.epoch,
		Attempt: int(e.attempts) + 1, Class: e.class, Since: e.since, Worker: a.Worker,
		Begun: now, Deadline: min(now+a.Length, q.deadline),
	}}
	e.pending, e.take = false, t
	s.taken++
	e.kind.taken++
	q.byID[t.ID] = t
	q.takes.add(t)
	if a.Affine {
		t.holder = q.workers[a.Worker]
		t.holder.takes++
	}
	e.kind.counts.Taken++
	return t.Take
}

// endTake ends a take.
func (q *Queue) endTake(t *taken) {
	e := t.entry
	e.take = nil
	e.kind.stirred = e.kind.stirred || e.kind.full()
	e.kind.taken--
	delete(q.byID, t.ID)
	q.takes.remove(t)
	if t.holder != nil {
		t.holder.takes--
	}
	s := &q.slots[e.slot]
	if s.taken--; s.taken == 0 && s.draining {
		q.drained.Add(e.slot)
	}
}

// find returns a worker's take.
func (q *Queue) find(now time.Duration, id uint64, worker string) (*taken, error) {
	q.tick(now)
	t := q.byID[id]
	switch {
	case t == nil:
		return nil, ErrTake
	case t.Worker != worker:
		return nil, ErrWorker
	}
	if t.holder != nil {
		t.holder.seen = now
	}
	return t, nil
}

// Result is the result of the work on a key.
type Result struct {
	// Retry means that the work failed: the key is handed out again after a delay that grows with each failure.
	Retry bool
	// Reason is why the work failed. It is shown with failing keys. MaxReason bytes of it are kept.
	Reason string
	// After makes the key come again after this time even without a change, if it is not 0. With Retry it is the shortest
	// delay. An object that has changed since it was handed out is handed out again at once, as in client-go's queues.
	After time.Duration
}

// Done ends a take. The error is ErrTake or ErrWorker, or about the result. A Done that repeats one of the last two
// minutes succeeds without effect, since its answer may have been lost.
func (q *Queue) Done(now time.Duration, id uint64, worker string, r Result) error {
	if r.After < 0 {
		return fmt.Errorf("after %v: must not be negative", r.After)
	}
	t, err := q.find(now, id, worker)
	if errors.Is(err, ErrTake) && q.done.has(now, id, worker, r) {
		return nil
	}
	if err != nil {
		return err
	}
	q.done.add(doneTake{id, now, worker, r})
	if r.Retry {
		t.entry.kind.counts.Retried++
		q.failed(now, t, r.After, r.Reason)
		return nil
	}
	e := t.entry
	e.kind.counts.Done++
	q.endTake(t)
	e.succeeds()
	switch {
	case e.pending: // it changed meanwhile
		q.place(now, e)
	case r.After > 0:
		e.pending, e.class, e.due = true, Opened, later(now, r.After)
		q.place(now, e)
	default:
		q.forget(e)
	}
	return nil
}

// Release ends a take as if it had not happened.
func (q *Queue) Release(now time.Duration, id uint64, worker string) error {
	t, err := q.find(now, id, worker)
	if err != nil {
		return err
	}
	e := t.entry
	e.kind.counts.Released++
	q.endTake(t)
	if !e.pending {
		e.pending, e.class, e.since, e.due = true, t.Class, t.Since, now
	}
	q.place(now, e)
	return nil
}

// Extended is the result of Extend.
type Extended struct {
	Deadline time.Duration
	// Draining is true if the key's slot is about to move to another member, so the worker should finish soon. From the
	// start of a drain, takes are extended for at most Config.DrainLimit.
	Draining bool
}

// Extend moves the deadline of a take to now plus length, or to the member's own deadline if that is earlier. It never
// moves it back. With length 0 it uses Config.Length.
func (q *Queue) Extend(now time.Duration, id uint64, worker string, length time.Duration) (Extended, error) {
	t, err := q.find(now, id, worker)
	if err != nil {
		return Extended{}, err
	}
	if length == 0 {
		length = q.cfg.Length
	}
	s := &q.slots[t.Slot]
	at := min(now+min(max(length, q.cfg.MinLength), q.cfg.MaxLength), q.deadline)
	if s.draining {
		at = min(at, s.since+q.cfg.DrainLimit)
	}
	if at > t.Deadline {
		t.Deadline = at
		q.takes.moved(t)
	}
	return Extended{t.Deadline, s.draining}, nil
}
