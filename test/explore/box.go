package explore

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// life is the state of a pod's container.
type life uint8

const (
	absent   life = iota // not started yet, or gone for good
	running              // a process runs; it may be paused
	crashed              // it may be restarted
	rejoined             // the process runs on, and starts its next incarnation once nothing of the last is in flight
)

// Ways by which news comes to a member. Each may lag.
const (
	lagTable   uint8 = 1 << iota // the watch of the table
	lagLeases                    // the watch of the Leases
	lagAnswers                   // answers to requests
)

// box is everything of a pod but the member: what is on its way to it, its gate, and what it may still write.
type box struct {
	life        life
	inc         uint8 // of the latest incarnation
	former      uint8 // the first incarnation of the process
	paused, sig bool  // sig: it got SIGTERM
	lag         uint8

	renew   answer
	start   int // when the renewal was sent
	renewed lease
	read    answer
	begun   time.Duration // when the read was sent
	found   snap
	swap    answer
	serial  uint64
	swapped snap
	deletes []deleted

	// queue is the order of what came, one letter for each. A Free scope does not keep it.
	queue []way

	tables []snap
	listed bool // the first of tables is how the watch begins
	leases []news
	watch  uint64 // the serial of the watch of Leases; 0: none
	all    bool
	ids    uint32 // by Lease index
	ops    []op

	gate     []gateSlot
	deadline int // of the gate; 0: it has passed, or there was none

	// gun are slots in which a reconcile checked its context just before its process was paused. When the process goes on,
	// it writes.
	gun uint8
	// owed are the slots in which it knows of a deletion that is not reconciled.
	owed uint8
	// horizon is, per slot, until when a write may commit; 0: none. left is the same for writes of earlier processes.
	horizon, left []int
}

// answer is an answer on its way. The sender of a request that went astray learns so at any time within wait ticks.
type answer struct {
	has     bool
	outcome member.Outcome
	wait    uint8
}

func answered(o member.Outcome) answer {
	a := answer{has: true, outcome: o}
	if o == member.OutcomeUnknown {
		a.wait = writeTimeout
	}
	return a
}

// way is a way by which news comes.
type way uint8

const (
	byLease way = iota
	byRead
	bySwap
	byDelete
	byTables
	byLeases
)

// lags is the kind of lag that holds up a way.
func (y way) lags() uint8 {
	return [...]uint8{lagAnswers, lagAnswers, lagAnswers, lagAnswers, lagTable, lagLeases}[y]
}

// came records that something has come, unless nobody knows when it does. took records that the first of its way was
// taken, or the n-th.
func (b *box) came(x *space, y way, a answer) {
	if !x.Free && a.wait == 0 {
		b.queue = append(b.queue, y)
	}
}

func (b *box) took(y way, n int) {
	for i, z := range b.queue {
		if z != y {
			continue
		}
		if n == 0 {
			b.queue = slices.Delete(b.queue, i, i+1)
			return
		}
		n--
	}
}

// turn says whether a way is next: nothing came before it by a way that does not lag.
func (b *box) turn(x *space, y way) bool {
	if x.Free || b.lag&y.lags() != 0 {
		return true
	}
	for _, z := range b.queue {
		if b.lag&z.lags() == 0 {
			return z == y
		}
	}
	return false
}

// snap is a version of the table. Missing: uid 0.
type snap struct {
	uid     uint8
	version int
	table   *table.Table
}

type deleted struct {
	answer
	lease uint8
}

// news is one report of the watch of Leases: a list, a change or a deletion.
type news struct {
	list   bool
	gone   bool // of leases[0]
	leases []leaseAt
}

type leaseAt struct {
	index uint8
	lease
}

// lease is what a Lease says.
type lease struct {
	version int
	epoch   int
	uid     uint8
	open    bool
}

// op is a request about slots that has not been answered.
type op struct {
	kind  uint8
	slots uint8
	round uint64
	// room: a drain may leave deletions to the next owner.
	room bool
}

const (
	opWarm uint8 = iota
	opLoad
	opDrain
	opLook // a member reads what others report; its slot is lookSlot
)

// lookSlot is a bit that is no slot's.
const lookSlot = 1 << 7

// gateState is a model of package gate. TestGate compares the two.
type gateState uint8

const (
	gateShut gateState = iota
	gateOpen
	gateDraining
	gateIdle
	gateLapsed
)

type gateSlot struct {
	state gateState
	epoch int
}

func (b *box) clone() *box {
	c := *b
	c.deletes, c.tables, c.leases = slices.Clone(b.deletes), slices.Clone(b.tables), slices.Clone(b.leases)
	c.queue = slices.Clone(b.queue)
	c.ops, c.gate = slices.Clone(b.ops), slices.Clone(b.gate)
	c.horizon, c.left = slices.Clone(b.horizon), slices.Clone(b.left)
	for i := range c.leases {
		c.leases[i].leases = slices.Clone(c.leases[i].leases)
	}
	return &c
}

// end takes the process away. What it wrote may still commit.
func (b *box) end(l life) {
	for s := range b.gate {
		b.shut(s)
	}
	for s := range b.left {
		b.left[s] = max(b.left[s], b.horizon[s])
		b.horizon[s] = 0
	}
	*b = box{
		life: l, inc: b.inc, former: b.former, sig: b.sig, gate: make([]gateSlot, len(b.gate)),
		horizon: b.horizon, left: b.left,
	}
}

// working says that a slot's gate admits keys, or that some it admitted may be in flight.
func (b *box) working(s int) bool {
	return b.deadline > base && (b.gate[s].state == gateOpen || b.gate[s].state == gateDraining)
}

// shut shuts a slot: what is in flight is cancelled, but may have sent a write.
func (b *box) shut(s int) {
	if b.working(s) {
		b.horizon[s] = max(b.horizon[s], min(base+writeTimeout, b.deadline))
	}
	b.gate[s] = gateSlot{}
	b.callOff(s)
}

// callOff ends a drain.
func (b *box) callOff(s int) { b.drop(opDrain, 1<<s) }

func (b *box) drop(kind, slots uint8) {
	for i := range b.ops {
		if b.ops[i].kind == kind {
			b.ops[i].slots &^= slots
		}
	}
	b.ops = slices.DeleteFunc(b.ops, func(o op) bool { return o.slots == 0 })
}

func (b *box) open(s, epoch int) {
	b.gate[s] = gateSlot{gateOpen, epoch}
	if b.deadline <= base {
		b.gate[s].state = gateLapsed
	}
	b.callOff(s)
}

// lapse closes the slots.
func (b *box) lapse() {
	for s := range b.gate {
		switch b.gate[s].state {
		case gateOpen, gateDraining, gateIdle:
			b.gate[s].state = gateLapsed
			b.callOff(s)
		case gateShut, gateLapsed:
		}
	}
}

// lapseEarly is a lapse although the deadline has not passed. If time passes between a Step and its actions, a gate
// lapses by the former deadline before it is told of the next one.
func (b *box) lapseEarly() {
	for s := range b.gate {
		if b.working(s) {
			b.horizon[s] = max(b.horizon[s], min(base+writeTimeout, b.deadline))
		}
	}
	b.lapse()
}

func (b *box) setDeadline(at int) {
	if b.deadline <= base {
		b.lapse()
	}
	b.deadline = at
}

// request replaces earlier ops for the same slots by this one. Their answers would be ignored.
func (b *box) request(o op) {
	b.drop(o.kind, o.slots)
	b.ops = append(b.ops, o)
	slices.SortFunc(b.ops, func(p, q op) int { return int(p.kind)<<8 + int(p.slots) - int(q.kind)<<8 - int(q.slots) })
}

// tell appends to the watch of Leases. Of a backlog of renewals that say the same, only the last is told.
func (b *box) tell(x *space, n news) {
	if !n.list && !n.gone {
		l := n.leases[0]
		for i := len(b.leases) - 1; i >= 0; i-- {
			old := &b.leases[i]
			if old.list {
				break
			}
			if was := old.leases[0]; was.index == l.index {
				if !old.gone && was.epoch == l.epoch && was.uid == l.uid && was.open == l.open {
					b.leases = slices.Delete(b.leases, i, i+1)
					b.took(byLeases, i)
				}
				break
			}
		}
	}
	b.leases = append(b.leases, n)
	b.came(x, byLeases, answer{})
}

// shift lets a tick pass.
func (b *box) shift(x *space) {
	if b.renew.has {
		b.start = max(b.start-1, base-int(x.config.RenewDeadline))
	}
	for _, a := range []*answer{&b.renew, &b.read, &b.swap} {
		a.wait = max(a.wait, 1) - 1
	}
	for i := range b.deletes {
		b.deletes[i].wait = max(b.deletes[i].wait, 1) - 1
	}
	if b.begun != 0 {
		b.begun--
	}
	if b.deadline > 0 {
		if b.deadline--; b.deadline <= base {
			b.deadline = 0
			b.lapse()
		}
	}
	for _, of := range [][]int{b.horizon, b.left} {
		for s := range of {
			if of[s]--; of[s] <= base {
				of[s] = 0
			}
		}
	}
}

func (b *box) numbers(x *space, pod int, v visit) {
	self := classLease + x.leaseIndex(pod, b.inc)
	leaseNumbers := func(class uint8, l *lease) {
		v.int(class, &l.version)
		v.int(classEpoch, &l.epoch)
	}
	leaseNumbers(self, &b.renewed)
	b.found.numbers(x, v)
	b.swapped.numbers(x, v)
	for i := range b.tables {
		b.tables[i].numbers(x, v)
	}
	for i := range b.leases {
		for j := range b.leases[i].leases {
			l := &b.leases[i].leases[j]
			leaseNumbers(classLease+l.index, &l.lease)
		}
	}
	for i := range b.gate {
		v.int(classEpoch, &b.gate[i].epoch)
	}
	for i := range b.ops {
		v.uint(classSerial, &b.ops[i].round)
	}
	v.uint(classSerial, &b.serial)
	v.uint(classSerial, &b.watch)
	v.order(&b.begun)
}

func (s *snap) numbers(x *space, v visit) {
	v.int(classTable, &s.version)
	s.table = x.renameTable(s.table, v)
}

func (b *encoder) snap(x *space, s snap) {
	b.int(int(s.uid))
	b.int(s.version)
	b.int(x.tableID(s.table))
}

func (b *encoder) lease(l lease) {
	b.int(l.version)
	b.int(l.epoch)
	*b = append(*b, l.uid)
	b.bools(l.open)
}

func (b *encoder) answer(a answer) {
	b.bools(a.has)
	*b = append(*b, byte(a.outcome), a.wait)
}

func (b *box) encode(x *space, e *encoder) {
	*e = append(*e, byte(b.life), b.inc, b.former, b.lag, b.gun, b.owed)
	e.bools(b.paused, b.sig, b.all)
	e.answer(b.renew)
	e.answer(b.read)
	e.answer(b.swap)
	e.int(b.start)
	e.lease(b.renewed)
	e.times(b.begun)
	e.snap(x, b.found)
	e.int(int(b.serial))
	e.snap(x, b.swapped)
	e.int(len(b.deletes))
	for _, d := range b.deletes {
		*e = append(*e, d.lease)
		e.answer(d.answer)
	}
	e.bools(b.listed)
	e.int(len(b.tables))
	for _, s := range b.tables {
		e.snap(x, s)
	}
	e.int(len(b.leases))
	for _, n := range b.leases {
		e.bools(n.list, n.gone)
		e.int(len(n.leases))
		for _, l := range n.leases {
			*e = append(*e, l.index)
			e.lease(l.lease)
		}
	}
	e.int(len(b.queue))
	for _, y := range b.queue {
		*e = append(*e, byte(y))
	}
	e.int(int(b.watch))
	e.int(int(b.ids))
	e.int(len(b.ops))
	for _, o := range b.ops {
		*e = append(*e, o.kind, o.slots)
		e.int(int(o.round))
		e.bools(o.room)
	}
	for _, g := range b.gate {
		*e = append(*e, byte(g.state))
		e.int(g.epoch)
	}
	e.int(b.deadline)
	for s := range b.horizon {
		e.int(b.horizon[s])
		e.int(b.left[s])
	}
}
