package dispatch

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

// worker asks with Ask.Affine.
type worker struct {
	name  string
	hash  uint64
	kinds []*kind
	asks  int // that wait
	takes int
	seen  time.Duration // when it last asked, or ended or extended a take
	// until is when to look whether it is idle; place is its place among all by that.
	until time.Duration
	place int
}

func (w *worker) when() time.Duration { return w.until }
func (w *worker) put(place int)       { w.place = place }
func (w *worker) at() int             { return w.place }

// share has the keys of one kind that prefer one worker.
type share struct {
	lane
	worker *worker
}

// joins notes that a worker asks with Affine.
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
		if k.workers[w.name] != nil {
			continue
		}
		k.workers[w.name] = &share{worker: w}
		w.kinds = append(w.kinds, k)
	}
}

// looksIdle removes a worker that neither has a take nor asks, or looks again later.
func (q *Queue) looksIdle(now time.Duration, w *worker) {
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
		k.rehome(&left.lane)
	}
}

// rehome has the keys of a lane go where they belong now.
func (k *kind) rehome(from *lane) {
	var keys []*entry
	for i := range from.rings {
		for r := &from.rings[i]; r.turn != nil; r.turn = turned(r) {
			keys = append(keys, r.turn.first)
			r.turn.first.leave()
		}
	}
	for _, e := range keys {
		k.laneFor(e).add(e)
	}
	k.stirred = true
}

// turned is whose turn is next in a ring; nil if it is empty.
func turned(r *ring) *line {
	if r.turn == nil {
		return nil
	}
	return r.turn.next
}

// laneFor returns where a key belongs.
func (k *kind) laneFor(e *entry) *lane {
	if len(k.workers) == 0 {
		return &k.all
	}
	var best *share
	var most uint64
	key := slot.HashName(e.namespace, e.name)
	for _, s := range k.workers {
		score := mix(key ^ s.worker.hash)
		if best == nil || score > most || score == most && s.worker.name < best.worker.name {
			best, most = s, score
		}
	}
	return &best.lane
}

// mix spreads a number over all numbers (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ready says whether any key is.
func (k *kind) ready() bool {
	if k.all.ready > 0 {
		return true
	}
	for _, s := range k.workers {
		if s.ready > 0 {
			return true
		}
	}
	return false
}

// next takes the key that should go to an Ask off its line; nil: there is none for it.
func (k *kind) next(now time.Duration, a *ask, patience time.Duration) *entry {
	if a.Affine {
		if e := k.workers[a.Worker].take(); e != nil {
			return e
		}
	}
	if e := k.all.take(); e != nil {
		return e
	}
	// Keys that have been waiting for their worker for long.
	var from *share
	for _, s := range k.workers {
		head := s.head()
		if head == nil || now-head.since < patience {
			continue
		}
		if from == nil || head.since < from.head().since ||
			head.since == from.head().since && s.worker.name < from.worker.name {
			from = s
		}
	}
	if from == nil {
		return nil
	}
	return from.take()
}

// patience is when a key will have been waiting for its worker for long, while somebody else waits for keys.
func (k *kind) patience(patience time.Duration) time.Duration {
	if len(k.workers) == 0 || !slices.ContainsFunc(k.waiting, func(a *ask) bool { return !a.over && a.Max > 0 }) {
		return never
	}
	at := never
	for _, s := range k.workers {
		if head := s.head(); head != nil {
			at = min(at, head.since+patience)
		}
	}
	return at
}
