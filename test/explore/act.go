package explore

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// kind is a kind of action: what may happen next.
type kind uint8

const (
	tick kind = iota
	answerLease
	answerRead
	answerSwap
	answerDelete
	seeTable
	seeLeases
	finish
	advance
	admit
	// From here on, only as often as the scope says.
	start
	restart
	leave
	crash
	pause
	resume
	lag
	unlag
	lose
	relist
	rejoin
	dropTable
	dropLease
	lapse
	order
	kinds
)

var kindNames = [kinds]string{
	"tick", "renewed", "read", "swapped", "deleted", "table", "leases", "finish", "advance", "admit",
	"start", "restart", "leave", "crash", "pause", "resume", "lag", "unlag", "lose", "relist", "rejoin",
	"drop-table", "drop-lease", "lapse", "order",
}

func (k kind) String() string { return kindNames[k] }

// faults are what Scope.Faults counts.
var faults = []kind{crash, pause, lag, lose, relist, dropTable, dropLease, lapse}

// act is something that may happen in a state.
type act struct {
	kind kind
	pod  uint8
	// arg is the number of an op, of a request that went astray, of a Lease, or of an order, or says which news lags.
	arg uint8
	// slot is that of an op's part.
	slot uint8
	// lose says which of the requests that follow goes astray, from 1; 0: none.
	lose uint8
}

// String returns a line of a script.
func (x *space) describe(a act) string {
	var b strings.Builder
	b.WriteString(a.kind.String())
	switch a.kind {
	case advance:
	case admit, dropTable:
		fmt.Fprintf(&b, " %d", a.arg)
	case dropLease:
		b.WriteString(" " + x.name(a.arg))
	case order:
		b.WriteString(" " + x.Orders[a.arg])
	default:
		b.WriteString(" " + podName(int(a.pod)))
	}
	switch a.kind {
	case lag, unlag, relist:
		b.WriteString(" " + map[uint8]string{lagTable: "table", lagLeases: "leases", lagAnswers: "answers"}[a.arg])
	case finish:
		fmt.Fprintf(&b, " %d/%d", a.arg, a.slot)
	case answerDelete:
		fmt.Fprintf(&b, " %d", a.arg)
	default:
	}
	if a.lose > 0 {
		fmt.Fprintf(&b, " lose=%d", a.lose)
	}
	return b.String()
}

// may says whether another action of a bounded kind may happen.
func (w *world) may(k kind) bool {
	s := w.server()
	if s.used[k] >= w.x.Limits[k] {
		return false
	}
	if !slices.Contains(faults, k) {
		return true
	}
	n := uint8(0)
	for _, f := range faults {
		n += s.used[f]
	}
	return n < w.x.Faults
}

func (w *world) use(k kind) { w.changeServer().used[k]++ }

// enabled lists what may happen. variants adds the acts in which a request goes astray. If something must happen before
// time passes, advance is not in the list.
func (w *world) enabled(into []act) []act {
	acts := into[:0]
	urgent := false
	add := func(k kind, pod int, arg, slot uint8) {
		acts = append(acts, act{kind: k, pod: uint8(pod), arg: arg, slot: slot})
	}
	for i := range w.x.Pods {
		b := w.box(i)
		must := func(k kind) {
			urgent = true
			add(k, i, 0, 0)
		}
		news := func(y way, k kind, arg uint8, a answer) {
			unknown := a.has && a.outcome == member.OutcomeUnknown
			urgent = urgent || b.lag&y.lags() == 0 && a.wait == 0
			if unknown || b.turn(w.x, y) {
				add(k, i, arg, 0)
			}
		}
		switch b.life {
		case absent:
			if b.inc == 0 && w.may(start) {
				add(start, i, 0, 0)
			}
			continue
		case crashed:
			if b.inc < maxIncs && w.may(restart) {
				add(restart, i, 0, 0)
			}
			continue
		case rejoined:
			if slices.Max(b.left) == 0 {
				must(rejoin)
			}
			continue
		case running:
		}
		if w.may(crash) {
			add(crash, i, 0, 0)
		}
		if b.paused {
			add(resume, i, 0, 0)
			continue
		}
		if b.renew.has {
			news(byLease, answerLease, 0, b.renew)
		}
		if b.read.has {
			news(byRead, answerRead, 0, b.read)
		}
		if b.swap.has {
			news(bySwap, answerSwap, 0, b.swap)
		}
		first := true
		for j, d := range b.deletes {
			if known := d.outcome != member.OutcomeUnknown; !known || w.x.Free || first {
				news(byDelete, answerDelete, uint8(j), d.answer)
				first = first && !known
			}
		}
		if len(b.tables) > 0 {
			news(byTables, seeTable, 0, answer{})
		}
		if len(b.leases) > 0 {
			news(byLeases, seeLeases, 0, answer{})
		}
		for j, o := range b.ops {
			slot := uint8(bits.TrailingZeros8(o.slots))
			if o.kind == opDrain && b.horizon[slot] > 0 {
				continue
			}
			urgent = urgent || !w.x.Lazy && o.kind != opLook
			add(finish, i, uint8(j), slot)
		}
		if w.member(i).Wake() <= base {
			must(tick)
		}
		if !b.sig && w.may(leave) {
			add(leave, i, 0, 0)
		}
		if w.may(pause) {
			add(pause, i, 0, 0)
		}
		if b.deadline > base && w.may(lapse) {
			add(lapse, i, 0, 0)
		}
		if w.may(relist) {
			add(relist, i, lagTable, 0)
			if b.watch != 0 {
				add(relist, i, lagLeases, 0)
			}
		}
		for l := lagTable; l <= lagAnswers; l <<= 1 {
			if b.lag&l != 0 {
				add(unlag, i, l, 0)
			} else if w.may(lag) && b.lag == 0 {
				add(lag, i, l, 0)
			}
		}
	}
	s := w.server()
	for j := range s.astray {
		add(admit, 0, uint8(j), 0)
	}
	if s.table.uid != 0 && w.may(dropTable) {
		add(dropTable, 0, 0, 0)
	}
	for j, name := range w.x.Orders {
		if w.may(order) && w.ordered(name) != nil {
			add(order, 0, uint8(j), 0)
		}
	}
	for j, l := range s.leases {
		if l.exists && w.may(dropLease) {
			add(dropLease, 0, uint8(j), 0)
		}
	}
	if !urgent {
		add(advance, 0, 0, 0)
	}
	return acts
}

// do carries out an act in a world that has no changes yet.
func (w *world) do(a act) {
	w.lose = int(a.lose) - 1
	if a.lose > 0 {
		w.use(lose)
	}
	if a.kind >= start {
		switch a.kind {
		case resume, unlag, rejoin:
		default:
			w.use(a.kind)
		}
	}
	pod := int(a.pod)
	switch a.kind {
	case advance:
		w.advance()
		return
	case admit:
		s := w.changeServer()
		stray := s.astray[a.arg]
		s.astray = slices.Delete(s.astray, int(a.arg), int(a.arg)+1)
		w.admit(stray)
		return
	case dropTable:
		w.putTable(0, nil)
		return
	case dropLease:
		w.removeLease(a.arg)
		return
	case order:
		w.putTable(w.server().table.uid, w.x.intern(w.ordered(w.x.Orders[a.arg])))
		return
	default:
	}
	b := w.change(pod)
	switch a.kind {
	case start:
		w.start(pod, true)
	case restart:
		w.start(pod, true)
	case rejoin:
		w.start(pod, false)
	case crash:
		b.end(crashed)
		w.state.members[pod] = 0
	case pause:
		b.paused = true
		for s := range b.gate {
			if b.working(s) {
				b.gun |= 1 << s
			}
		}
	case resume:
		b.paused = false
		w.fire(pod)
	case lag:
		b.lag |= a.arg
	case lapse:
		b.lapseEarly()
		w.deliver(pod, member.Lapsed{})
	case relist:
		w.relist(pod, a.arg)
	case unlag:
		b.lag &^= a.arg
	default:
		w.deliver(pod, w.take(pod, a))
	}
}

// relist breaks a watch: what is on its way is lost, and the state is reported again.
func (w *world) relist(pod int, which uint8) {
	b := w.change(pod)
	if which == lagTable {
		b.tables, b.listed = []snap{w.server().table}, true
		b.queue = slices.DeleteFunc(b.queue, func(y way) bool { return y == byTables })
		b.came(w.x, byTables, answer{})
		return
	}
	b.leases = nil
	b.queue = slices.DeleteFunc(b.queue, func(y way) bool { return y == byLeases })
	list := news{list: true}
	for i, l := range w.server().leases {
		if l.exists && b.watches(uint8(i)) {
			list.leases = append(list.leases, leaseAt{uint8(i), l.lease})
		}
	}
	b.tell(w.x, list)
}

// take takes from the box what is delivered next.
func (w *world) take(pod int, a act) member.Event {
	b := w.change(pod)
	switch a.kind {
	case tick:
		return member.Tick{}
	case leave:
		b.sig = true
		return member.Leave{}
	case answerLease:
		e := member.Renewed{Start: time.Duration(b.start), Outcome: b.renew.outcome}
		if e.Outcome == member.OutcomeDone {
			e.Lease = w.x.leaseEvent(leaseAt{w.self(pod), b.renewed})
			w.renewed = b.start
		}
		b.renew, b.start, b.renewed = answer{}, 0, lease{}
		b.took(byLease, 0)
		return e
	case answerRead:
		failed, s, begun := b.read.outcome != member.OutcomeDone, b.found, b.begun
		b.read, b.found, b.begun = answer{}, snap{}, 0
		b.took(byRead, 0)
		if failed {
			return member.ReadFailed{}
		}
		return member.TableSeen{Snapshot: s.snapshot(), Consistent: true, Begun: begun}
	case answerSwap:
		e := member.Swapped{Serial: b.serial, Outcome: b.swap.outcome, Snapshot: b.swapped.snapshot()}
		b.swap, b.serial, b.swapped = answer{}, 0, snap{}
		b.took(bySwap, 0)
		return e
	case answerDelete:
		d := b.deletes[a.arg]
		b.deletes = slices.Delete(b.deletes, int(a.arg), int(a.arg)+1)
		if d.outcome != member.OutcomeUnknown {
			b.took(byDelete, 0)
		}
		return member.LeaseDeleted{ID: w.x.name(d.lease), Outcome: d.outcome}
	case seeTable:
		s := b.tables[0]
		b.tables = slices.Delete(b.tables, 0, 1)
		b.took(byTables, 0)
		listed := b.listed
		b.listed = false
		return member.TableSeen{Snapshot: s.snapshot(), Listed: listed}
	case seeLeases:
		n := b.leases[0]
		b.leases = slices.Delete(b.leases, 0, 1)
		b.took(byLeases, 0)
		e := member.LeasesSeen{Complete: n.list, Watch: b.watch}
		for _, l := range n.leases {
			if n.gone {
				e.Gone = append(e.Gone, w.x.name(l.index))
			} else {
				e.Leases = append(e.Leases, w.x.leaseEvent(l))
			}
		}
		return e
	case finish:
		o := b.ops[a.arg]
		set := slotsOf(o.slots)
		b.ops = slices.Delete(b.ops, int(a.arg), int(a.arg)+1)
		switch o.kind {
		case opLook:
			return member.LoadsSeen{Serial: o.round, Reports: w.bad()}
		case opWarm:
			return member.Warmed{Slots: set, Round: o.round}
		case opLoad:
			return member.Loaded{Slots: set, Round: o.round}
		default:
			if g := &b.gate[a.slot]; g.state == gateDraining {
				g.state = gateIdle
			}
			if !o.room {
				b.owed &^= o.slots // abandoned, and told
			}
			return member.Drained{Slots: set, Round: o.round, Gone: goneIn(o.slots & b.owed)}
		}
	default:
		panic(a.kind.String())
	}
}

// advance lets a tick pass.
func (w *world) advance() {
	for i := range w.x.Pods {
		w.change(i).shift(w.x)
		if id := w.state.members[i]; id != 0 {
			w.state.members[i] = w.x.shiftMember(id)
		}
	}
}
