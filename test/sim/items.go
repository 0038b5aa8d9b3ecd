package sim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/work"
)

// items is the work queue of a node, which does what client-go's does: a key is in it once, and with one worker at a
// time. One that comes while a worker has it is in the queue again when that is done. Its keys come by the controller,
// as those of a rota.Queue do.
type items struct {
	ready        []key
	dirty, taken map[key]bool
}

func (q *items) init() { q.dirty, q.taken = map[key]bool{}, map[key]bool{} }

// add returns whether a worker may take it.
func (q *items) add(k key) bool {
	if q.dirty[k] {
		return false
	}
	if q.dirty[k] = true; q.taken[k] {
		return false
	}
	q.ready = append(q.ready, k)
	return true
}

func (q *items) get() key {
	k := q.ready[0]
	q.ready = q.ready[1:]
	q.taken[k] = true
	delete(q.dirty, k)
	return k
}

func (q *items) done(k key) {
	if delete(q.taken, k); q.dirty[k] {
		q.ready = append(q.ready, k)
	}
}

// add has a key reconciled, if it is the node's.
func (ws *workers) add(k key) {
	if ws.controller.Add(k.name()) && ws.items.add(k) {
		ws.hire()
	}
}

// addAfter adds it after a delay, such as a backoff.
func (ws *workers) addAfter(k key, d time.Duration) {
	if ws.controller.AddLater(k.name()) {
		ws.w.after(d, func() {
			ws.n.local(func() {
				if ws.items.add(k) {
					ws.hire()
				}
			})
		})
	}
}

// enqueue is for the controller, of which the order of keys that come together is random.
func (ws *workers) enqueue(keys []types.NamespacedName, _ work.Priority) {
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return keyOf(a).index() - keyOf(b).index() })
	for _, name := range keys {
		ws.add(keyOf(name))
	}
}

// hire has a worker take a key after a moment.
func (ws *workers) hire() {
	if !ws.w.wild {
		return // a script says when
	}
	ws.w.after(ws.w.delay(time.Millisecond, 50*time.Millisecond), func() {
		ws.n.local(func() {
			if ws.busy == crew || len(ws.items.ready) == 0 {
				return
			}
			ws.busy++
			k := ws.items.get()
			ws.w.after(ws.moment(), func() {
				ws.n.local(func() {
					ws.controller.Take(k.name())
					ws.w.after(ws.moment(), func() { ws.n.local(func() { ws.reconcile(k) }) })
				})
			})
		})
	})
}

// done ends a worker's turn with a key, which the controller hears of before the queue.
func (ws *workers) done(k key) {
	f := ws.flights[k]
	delete(ws.flights, k)
	ws.controller.Done(k.name())
	if f != nil {
		ws.bereft(f)
	}
	ws.n.run()
	if !ws.w.wild {
		return
	}
	ws.w.after(ws.moment(), func() {
		ws.n.local(func() {
			ws.busy--
			ws.items.done(k)
			ws.hire()
		})
	})
}

// moment is how long a worker takes from one thing to the next.
func (ws *workers) moment() time.Duration {
	switch {
	case !ws.w.paced:
		return 0
	case ws.w.rng.IntN(100) == 0:
		return ws.w.between(0, 300*time.Millisecond)
	}
	return ws.w.between(0, 2*time.Millisecond)
}
