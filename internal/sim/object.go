package sim

import (
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// objects are what the members of a deep world work on: keysPerSlot objects in each slot, which are always there. Their versions
// are numbers of their own, from 1.
type objects struct {
	// log has the change that made version i+1 at i.
	log []objectChange
	// compacted is the version up to which the changes are forgotten.
	compacted uint64
	of        []object // by key.index
}

type objectChange struct {
	key key
	at  time.Duration
}

// object is what happened to one.
type object struct {
	// versions of its changes, rising.
	versions []uint64
	// asked is the latest change by a user; reconciled the latest version that a reconcile which came to its end had seen.
	asked, reconciled uint64
	// seen is the latest version that a reconcile saw, told the latest that a reconcile wrote and got an answer for.
	seen, told     uint64
	seenBy, toldBy *Node
}

func newObjects(slots slot.Count) objects {
	return objects{of: make([]object, int(slots)*keysPerSlot)}
}

func (k key) index() int { return int(k.slot)*keysPerSlot + k.n }

// asOf is the version that an object had at a version of all.
func (o *objects) asOf(k key, version uint64) uint64 {
	v := o.of[k.index()].versions
	i := sort.Search(len(v), func(i int) bool { return v[i] > version })
	if i == 0 {
		return 0
	}
	return v[i-1]
}

// wrote notes that a node's write made the present version of all objects; nil: a user's.
func (o *objects) wrote(w *World, n *Node, k key) {
	c := objectChange{k, w.now}
	o.log = append(o.log, c)
	of := &o.of[k.index()]
	of.versions = append(of.versions, w.version)
	if n == nil {
		of.asked = w.version
	}
	for _, follower := range w.Nodes {
		if !follower.Dead {
			follower.informer.offer(w.version)
		}
	}
}

// users change objects now and then.
func (w *World) users() {
	w.after(w.between(50*time.Millisecond, 1500*time.Millisecond), func() {
		if w.over {
			return
		}
		k := key{slot.Slot(w.rng.IntN(int(w.opts.Slots))), w.rng.IntN(keysPerSlot)}
		w.version++
		w.logf("a user changes %v: version %d", k, w.version)
		w.objects.wrote(w, nil, k)
		w.users()
	})
}

// told notes that a node got the answer to its write.
func (o *objects) told(n *Node, k key, version uint64) {
	if of := &o.of[k.index()]; version > of.told {
		of.told, of.toldBy = version, n
	}
	n.informer.told[k.slot] = max(n.informer.told[k.slot], version)
}

// missed names a change by a user that nobody has reconciled; empty: there is none.
func (w *World) missed() string {
	for i, of := range w.objects.of {
		if of.asked > of.reconciled {
			k := key{slot.Slot(i / keysPerSlot), i % keysPerSlot}
			return fmt.Sprintf("version %d of key %v, which a user wrote, is not reconciled", of.asked, k)
		}
	}
	return ""
}

// checkComplete looks at the stores of a node that opens slots (rule R8).
func (n *Node) checkComplete(a member.Open) {
	for _, s := range a.Slots.Slots() {
		if !n.informer.held.Has(s) {
			n.w.violate("incomplete", "%s opens slot %v, whose objects it has not listed", n.ID, s)
			continue
		}
		for i := range keysPerSlot {
			k := key{s, i}
			of, sees := &n.w.objects.of[k.index()], n.informer.sees(k)
			if of.seen > sees && of.seenBy != n {
				n.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s has reconciled version %d",
					n.ID, s, sees, k, of.seenBy.ID, of.seen)
			}
			if was := n.w.objects.asOf(k, n.present[s]); was > sees {
				n.w.violate("stale open", "%s opens slot %v and sees version %d of %v; it was at %d when that was to be loaded",
					n.ID, s, sees, k, was)
			}
			if of.told > sees && of.toldBy != n {
				n.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s wrote version %d and was told so",
					n.ID, s, sees, k, of.toldBy.ID, of.told)
			}
		}
	}
}

// known is the word that an owner leaves of a slot: the highest version it saw or wrote.
func (in *informer) known(s slot.Slot) table.Versions {
	v := in.told[s]
	for i := range keysPerSlot {
		v = max(v, in.sees(key{s, i}))
	}
	return table.Versions{"Website": strconv.FormatUint(v, 10)}
}
