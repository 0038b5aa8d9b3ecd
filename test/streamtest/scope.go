package streamtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// Scope is a small world, and how much may happen in it.
type Scope struct {
	// Name is one word, About a line for people.
	Name, About string
	Config      stream.Config
	// Names is how many names of objects there are.
	Names int
	// Begin are acts with which it begins, one to a line.
	Begin string
	// Limits are how often the acts of a kind may be taken. Of changes there are Changes in all. Acts without a limit
	// are free: deliver, bookmark, drive, commit and answer.
	Changes uint8
	Limits  Limits
	// Wrong: labels may be wrong. Nowhere: objects may have no owner that counts.
	Wrong, Nowhere bool
	// More is how many changes may come before the end of a list of the whole, as with WatchList.
	More uint16
	// Long: not for a test run.
	Long bool
}

// Limits are by kind of act.
type Limits [kinds]uint8

// bounded are the kinds whose number is bounded, in the order in which they are printed.
var bounded = []kind{hold, renew, begin, reopen, ask}

// ScopeOf returns the scope of a name.
func ScopeOf(name string) (Scope, bool) {
	i := slices.IndexFunc(Scopes, func(s Scope) bool { return s.Name == name })
	if i < 0 {
		return Scope{}, false
	}
	return Scopes[i], true
}

// String says what may happen in a scope.
func (s Scope) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "names %d, slots %d", s.Names, s.Config.Slots)
	flag := func(is bool, text string) {
		if is {
			b.WriteString(", " + text)
		}
	}
	flag(s.Config.Selects, "a selector")
	flag(s.Config.Namesakes, "namesakes")
	flag(s.Config.Moves, "moves")
	flag(s.Wrong, "wrong labels")
	flag(s.Nowhere, "objects nowhere")
	fmt.Fprintf(&b, "; changes %d", s.Changes)
	for _, k := range bounded {
		flag(s.Limits[k] > 0, fmt.Sprintf("%v %d", k, s.Limits[k]))
	}
	return b.String()
}

// node is a world on the way through a scope.
type node struct {
	*world
	// used is how often acts were taken: changes by create, ask by the objects looked up.
	used Limits
}

// take takes an act and counts it.
func (n *node) take(a act) error {
	switch k := a.kind; {
	case k.change():
		n.used[create]++
	case k == ask:
		before := len(n.looks)
		err := n.do(a)
		n.used[ask] += uint8(len(n.looks) - before)
		return err
	case slices.Contains(bounded, k):
		n.used[k]++
	}
	return n.do(a)
}

// acts returns what may happen next.
func (s Scope) acts(n *node, out []act) []act {
	out = s.changes(n, out[:0])
	add := func(a act) {
		if n.may(a) && (!slices.Contains(bounded, a.kind) || n.used[a.kind] < s.Limits[a.kind]) {
			out = append(out, a)
		}
	}
	for of := range set(1) << s.Config.Slots {
		if of.slots() != n.held {
			add(act{kind: hold, set: of})
		}
		if of != 0 {
			add(act{kind: renew, set: of})
		}
	}
	add(act{kind: begin})
	for more := range s.More + 1 {
		add(act{kind: commit, n: more})
	}
	if n.next < len(n.server.log) {
		add(act{kind: deliver})
	}
	add(act{kind: bookmark})
	add(act{kind: reopen})
	add(act{kind: drive})
	if _, _, doubted := n.core.Size(); doubted > 0 {
		add(act{kind: ask, n: 1})
	}
	for i, k := range n.looks {
		if _, _, current := n.core.Asks(k.doubt); current {
			add(act{kind: answer, n: uint16(i)})
		}
	}
	return out
}

// changes returns what the server may do.
func (s Scope) changes(n *node, out []act) []act {
	if n.used[create] == s.Changes {
		return out
	}
	for _, is := range n.server.has {
		fixed := slot.Slot(is.name % s.Config.Slots)
		for to := range slot.Slot(s.Config.Slots) {
			there := to == fixed || s.Config.Namesakes
			if is.exists {
				there = to == is.slot
			}
			if there || s.Config.Moves {
				out = s.labels(is, to, out)
			}
		}
		if is.exists {
			out = append(out, is.by(remove))
		}
	}
	return out
}

// labels returns the ways to put an object into a slot.
func (s Scope) labels(is state, to slot.Slot, out []act) []act {
	k := update
	if !is.exists {
		k = create
	}
	is.slot = to
	for label := range slot.Slot(s.Config.Slots + 1) {
		if label != to && !s.Wrong {
			continue
		}
		is.label, is.in = label, true
		out = append(out, is.by(k))
		if s.Nowhere && k == update {
			is.in = false
			out = append(out, is.by(k))
		}
	}
	return out
}
