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
func (n *Node) add(k key) {
	if n.work.controller.Add(k.name()) && n.work.items.add(k) {
		n.hire()
	}
}

// addAfter adds it after a delay, such as a backoff.
func (n *Node) addAfter(k key, d time.Duration) {
	if n.work.controller.AddLater(k.name()) {
		n.w.after(d, func() {
			n.local(func() {
				if n.work.items.add(k) {
					n.hire()
				}
			})
		})
	}
}

// enqueue is for the controller, of which the order of keys that come together is random.
func (n *Node) enqueue(keys []types.NamespacedName, _ work.Priority) {
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return keyOf(a).index() - keyOf(b).index() })
	for _, name := range keys {
		n.add(keyOf(name))
	}
}

// hire has a worker take a key after a moment.
func (n *Node) hire() {
	if !n.w.wild {
		return // a script says when
	}
	n.w.after(n.w.delay(time.Millisecond, 50*time.Millisecond), func() {
		n.local(func() {
			if n.work.busy == crew || len(n.work.items.ready) == 0 {
				return
			}
			n.work.busy++
			k := n.work.items.get()
			n.w.after(n.moment(), func() {
				n.local(func() {
					n.work.controller.Take(k.name())
					n.w.after(n.moment(), func() { n.local(func() { n.reconcile(k) }) })
				})
			})
		})
	})
}

// done ends a worker's turn with a key, which the controller hears of before the queue.
func (n *Node) done(k key) {
	f := n.work.flights[k]
	delete(n.work.flights, k)
	n.work.controller.Done(k.name(), false, func(work.Flight[work.Flying]) {})
	if f != nil {
		n.bereft(f)
	}
	n.run()
	if !n.w.wild {
		return
	}
	n.w.after(n.moment(), func() {
		n.local(func() {
			n.work.busy--
			n.work.items.done(k)
			n.hire()
		})
	})
}

// moment is how long a worker takes from one thing to the next.
func (n *Node) moment() time.Duration {
	switch {
	case !n.w.paced:
		return 0
	case n.w.rng.IntN(100) == 0:
		return n.w.between(0, 300*time.Millisecond)
	}
	return n.w.between(0, 2*time.Millisecond)
}
