package sim

import (
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// wait is for a condition that becomes true when the stream goes on.
type wait struct {
	done func() bool
	then func()
}

func (in *informer) wait(done func() bool, then func()) {
	if done() {
		then()
		return
	}
	in.waits = append(in.waits, wait{done, then})
}

// changed looks which conditions are true by now.
func (in *informer) changed() {
	waits := in.waits
	in.waits = nil
	for _, one := range waits {
		in.wait(one.done, one.then)
	}
}

// hold makes slots wanted.
func (in *informer) hold(set slot.Set) {
	in.wanted = in.wanted.Union(set)
	in.kick()
}

// release ends that.
func (in *informer) release(set slot.Set) {
	if in.n.Stopped == nil && in.wanted.Intersect(set) != (slot.Set{}) {
		in.n.w.Coverage.Rules[10]++
	}
	in.wanted, in.anew = in.wanted.Minus(set), in.anew.Minus(set)
	in.kick()
	in.changed()
}

// renew asks for a list of slots that begins from now on.
func (in *informer) renew(set slot.Set) {
	if !set.Empty() {
		in.core.Renew(set)
		in.kick()
	}
}

// settled waits until the store holds the slots, and tells which of them are wanted still.
func (in *informer) settled(set slot.Set, then func(slot.Set)) {
	in.wait(func() bool {
		for _, s := range set.Slots() {
			if in.wanted.Has(s) && !in.core.Ready(s) {
				return false
			}
		}
		return true
	}, func() { then(set.Intersect(in.wanted)) })
}

// follows says up to which version a load follows the former owner's writes; false: it does not.
func follows(a member.Load) (version uint64, does bool) {
	version, err := strconv.ParseUint(a.Versions[website.Kind], 10, 64)
	return version, a.Cause == table.CauseHanded && err == nil
}

// holdAnew makes slots wanted, with a list of those that were not that begins from now on.
func (in *informer) holdAnew(set slot.Set) {
	anew := set.Minus(in.wanted)
	in.anew = in.anew.Union(anew)
	in.renew(anew)
	in.hold(set)
}

// load makes the store complete for it, as Share.Load does.
func (in *informer) load(a member.Load, then func(slot.Set)) {
	w := in.n.w
	handed, follows := follows(a)
	before := a.Slots.Minus(in.anew)
	in.anew = in.anew.Minus(a.Slots)
	in.settled(a.Slots, func(set slot.Set) {
		rest := before.Intersect(set)
		switch {
		case a.Held, !follows && rest.Empty():
			in.soon(func() { then(set.Intersect(in.wanted)) })
		case follows:
			in.follow(set, handed, then)
		case in.silent():
			in.renew(rest)
			in.settled(set, then)
		default:
			version := w.version
			if w.spoiled.oldVersions {
				version = number(in.core.Position())
			}
			in.soon(func() {
				in.follow(rest, version, func(slot.Set) { in.settled(set, then) })
			})
		}
	})
}

// follow waits until the stream has reached a version in the slots, which the store holds. Where that takes long, it
// lists them.
func (in *informer) follow(set slot.Set, version uint64, then func(slot.Set)) {
	w, over := in.n.w, false
	slots := set.Slots()
	settle := func() { in.settled(set, then) }
	in.wait(func() bool { return over || in.core.Reached(slots, text(version)) }, func() {
		if over {
			return
		}
		over = true
		settle()
	})
	w.after(w.between(200*time.Millisecond, 5*time.Second), func() {
		in.n.local(func() {
			if !over {
				over = true
				in.renew(set.Intersect(in.wanted))
				settle()
			}
		})
	})
	var nudge func()
	nudge = func() {
		if !over {
			in.bookmark()
			w.after(w.between(100*time.Millisecond, 2*time.Second), func() { in.n.local(nudge) })
		}
	}
	w.after(w.between(100*time.Millisecond, time.Second), func() { in.n.local(nudge) })
}

// patience is how long a drain waits for the watch.
const patience = 10 * time.Second

// catchUp waits until the store shows what has happened in the slots, or for its patience, as Share.CatchUp does.
func (in *informer) catchUp(set slot.Set, then func()) {
	w, over, now := in.n.w, false, text(in.n.w.version)
	slots := set.Slots()
	in.wait(func() bool { return over || in.core.Reached(slots, now) }, func() {
		if !over {
			over = true
			in.n.answered(then)
		}
	})
	for _, wait := range []time.Duration{w.between(10*time.Millisecond, time.Second), w.between(time.Second, patience)} {
		w.after(wait, func() { in.n.local(in.bookmark) })
	}
	w.after(patience, func() {
		in.n.local(func() {
			if !over {
				over = true
				in.n.answered(then)
			}
		})
	})
}
