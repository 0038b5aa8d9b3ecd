package queue

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

// worker is a worker that asks with Ask.Affine.
type worker struct {
	name  string
	hash  uint64
	kinds []*kind
	asks  int // waiting ones
	takes int
	seen  time.Duration // when it last asked, or ended or extended a take
	// until is when to check whether it is idle. place is its place among all workers, ordered by that.
	until time.Duration
	place int
}

func (w *worker) when() time.Duration { return w.until }
func (w *worker) put(place int)       { w.place = place }
func (w *worker) at() int             { return w.place }

// share holds the keys of one kind that prefer one worker.
type share struct {
	lane
	worker *worker
	// since is when its head became ready. place is its place among the kind's shares, ordered by that, or -1 without
	// keys.
	since time.Duration
	place int
}

// hashed is a share with the hash of its worker.
type hashed struct {
	hash uint64
	of   *share
}

func (s *share) when() time.Duration { return s.since }
func (s *share) put(place int)       { s.place = place }
func (s *share) at() int             { return s.place }

// mayJoin reports whether its kinds have room for an ask's worker.
func (q *Queue) mayJoin(a *ask) bool {
	return !slices.ContainsFunc(a.kinds, func(k *kind) bool {
		return k.workers[a.Worker] == nil && len(k.workers) >= q.cfg.MaxAffine
	})
}

// joins registers a worker that asks with Affine.
func (q *Queue) joins(now time.Duration, a *ask) {
	w := q.workers[a.Worker]
	if w == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(a.Worker))
		w = &worker{name: a.Worker, hash: h.Sum64(), place: -1, until: now + q.cfg.Idle}
		q.workers[w.name] = w
		q.idle.add(w)
	}
	w.seen = now
	w.asks++
	for _, k := range a.kinds {
		own := k.workers[w.name]
		if own == nil {
			own = &share{worker: w, place: -1}
			own.kind, own.share = k, own
			k.workers[w.name] = own
			k.shares = append(k.shares, hashed{w.hash, own})
			w.kinds = append(w.kinds, k)
		}
		a.shares = append(a.shares, own)
	}
}

// checkIdle removes a worker that neither holds takes nor asks, or schedules another check.
func (q *Queue) checkIdle(now time.Duration, w *worker) {
	if w.asks > 0 || w.takes > 0 {
		w.seen = now
	}
	if w.until = w.seen + q.cfg.Idle; w.until > now {
		q.idle.add(w)
		return
	}
	delete(q.workers, w.name)
	for _, k := range w.kinds {
		left := k.workers[w.name]
		delete(k.workers, w.name)
		k.shares = slices.DeleteFunc(k.shares, func(s hashed) bool { return s.of == left })
		k.heads.remove(left)
		left.share = nil
		k.rehome(&left.lane)
	}
}

// rehome moves the keys of a lane to where they belong now.
func (k *kind) rehome(from *lane) {
	var keys []*entry
	for i := range from.rings {
		for r := &from.rings[i]; r.turn != nil; r.turn = nextTurn(r) {
			keys = append(keys, r.turn.first)
			r.turn.first.leave()
		}
	}
	for _, e := range keys {
		k.laneFor(e).add(e)
	}
	k.stirred = true
}

// nextTurn returns the line whose turn is next, or nil if the ring is empty.
func nextTurn(r *ring) *line {
	if r.turn == nil {
		return nil
	}
	return r.turn.next
}

// laneFor returns the lane in which a key belongs.
func (k *kind) laneFor(e *entry) *lane {
	if len(k.shares) == 0 {
		return &k.all
	}
	var best *share
	var most uint64
	key := slot.HashName(e.namespace, e.name)
	for _, s := range k.shares {
		score := mix(key ^ s.hash)
		if best == nil || score > most || score == most && s.of.worker.name < best.worker.name {
			best, most = s.of, score
		}
	}
	return &best.lane
}

// mix is a hash of an integer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// overdue returns the share with the oldest head among those that have waited for their worker too long, or nil.
func (k *kind) overdue(now, patience time.Duration) *share {
	if first, ok := k.heads.first(); ok && now-first.since >= patience {
		return first
	}
	return nil
}

// forAny reports whether there is a key for any ask.
func (k *kind) forAny(now, patience time.Duration) bool {
	return k.all.ready > 0 || k.overdue(now, patience) != nil
}

// full reports whether the limit of taken keys is reached. Other keys wait until a take ends.
func (k *kind) full() bool { return k.most > 0 && k.taken >= k.most }

// next removes from its line the key that should go to an ask, or returns nil if there is none. own is the share of the
// ask's worker if it is affine.
func (k *kind) next(now time.Duration, own *share, patience time.Duration) *entry {
	if k.full() {
		return nil
	}
	if own != nil {
		if e := own.take(); e != nil {
			return e
		}
	}
	if e := k.all.take(); e != nil {
		return e
	}
	if from := k.overdue(now, patience); from != nil {
		return from.take()
	}
	return nil
}

// patience returns when a key will have waited for its worker too long while another worker waits for keys.
func (k *kind) patience(patience time.Duration) time.Duration {
	if first, ok := k.heads.first(); ok && k.hungry > 0 && !k.full() {
		return first.since + patience
	}
	return never
}
