package explore

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

// Worlds that differ by absolute numbers alone are one state. So every number is brought into a normal form after each
// transition:
//
//   - It is always base o'clock: letting time pass moves all that is remembered into the past by a tick instead. What lies
//     further back than any wait asks for stays there. Timers that are due are 0, as those that were never set.
//   - Versions, epochs and serials count down from top, by rank, since members only compare them (and add at most 3 to
//     an epoch, hence epochStep).
//   - What is never looked at again is 0.
const (
	base      = 1000
	top       = 500
	epochTop  = 5000
	epochStep = 10
	// wall is always the same: epochs start above it, memories of crashes never fade.
	wall = 1000
)

// The classes of numbers that are renamed by rank. Those of order and serial are a node's own.
const (
	classTable  uint8 = iota // versions of the table
	classEpoch               // epochs of tables
	classOrder               // times of which only the order matters, against each other and base
	classSerial              // what tells answers to requests apart
	classLease               // and above: versions of a Lease, by its index
)

// visit is called for every number of a class, and returns what to put in its place.
type visit func(class uint8, v int) int

func (v visit) text(class uint8, s *string) {
	if *s == "" {
		return
	}
	n, err := strconv.Atoi(*s)
	if err != nil {
		panic(err)
	}
	if to := v(class, n); to != n {
		*s = strconv.Itoa(to)
	}
}

func (v visit) uint(class uint8, n *uint64) {
	if *n != 0 {
		*n = uint64(v(class, int(*n)))
	}
}

func (v visit) int(class uint8, n *int) {
	if *n != 0 {
		*n = v(class, *n)
	}
}

func (v visit) order(t *time.Duration) {
	if *t != 0 {
		*t = time.Duration(v(classOrder, int(*t)))
	}
}

// clean puts what a Step left into normal form, but for the numbers that are renamed.
func (x *space) clean(m *mirror) {
	c := &m.cfg
	past := func(t *time.Duration, age time.Duration) {
		if *t != 0 {
			*t = max(*t, base-age)
		}
	}
	due := func(t *time.Duration) {
		if *t <= base {
			*t = 0
		}
	}
	m.out = nil
	m.now = member.Time{Mono: base, Wall: wall}
	m.wake = max(m.wake, base)
	m.serial = top
	m.order = orderMirror{} // a cache of what the table says
	m.ahead = aheadMirror{} // what is listed ahead is listed again: lists ahead take no time here

	// Of the own Lease, UID and Version are used.
	m.lease.mine = member.Lease{ID: m.lease.mine.ID, UID: m.lease.mine.UID, Version: m.lease.mine.Version}
	if m.lease.mine.UID == "" {
		m.lease.start = 0
	}
	past(&m.lease.start, c.RenewDeadline)
	due(&m.lease.next)
	if !m.lease.said || m.lease.open {
		m.lease.saidAt = 0
	}
	due(&m.read.retryAt)

	w := &m.watch
	past(&w.echo, x.echoMemory)
	if w.capped {
		w.step = 0
	}
	shift := base - w.heard
	w.heard = base
	heard := func(t *time.Duration, age time.Duration) { *t = max(*t+shift, base-age) }
	for _, o := range w.others {
		if o.missing {
			o.lease = member.Lease{ID: o.lease.ID}
		}
		o.lease.Epoch = min(o.lease.Epoch, 1) // 0 or not
		o.lease.Format = 0
		if o.pending {
			o.since = 0
			past(&o.seen, c.LeaseDuration/4+1)
		} else {
			o.seen = 0
			heard(&o.since, x.silenceMemory)
		}
		if o.missing || o.lease.Open || o.shutting {
			o.shut = 0
		} else {
			heard(&o.shut, c.FenceDelay)
		}
	}
	if !m.trouble.on || m.trouble.pending {
		m.trouble.since = 0
	} else {
		heard(&m.trouble.since, c.LeaseDuration)
	}

	// Versions come in order, and a list has the latest: what lies between the one known and the table does not matter.
	behind := func(v string) bool { return table.CompareVersions(v, m.snap.Version) < 0 }
	tr := &m.trail
	if tr.begun == "" && behind(tr.known) || m.snap.Version == "" {
		tr.known = ""
	}
	past(&tr.doubted, c.RetryPeriod)
	if behind(w.since) && (w.complete || tr.begun == "" || table.CompareVersions(w.since, tr.begun) < 0) {
		w.since = ""
	}
	if behind(m.swap.unknown) {
		m.swap.unknown = ""
	}

	for i := range m.slots {
		s := &m.slots[i]
		if s.state != sent {
			s.sentAt = 0
		}
		if s.state != warming && s.state != loading && s.state != draining {
			s.round = 0
		}
		if s.state != fenced {
			s.until = 0
		}
		due(&s.until)
		if s.state != drained && s.state != sent {
			s.cause, s.gone = table.CauseUnknown, nil
		}
		s.versions = nil
	}
	past(&m.gather, max(c.RetryPeriod/2, 3*time.Duration(x.Pods)*c.Coalesce))

	if !m.swap.underWay {
		m.swap.serial, m.swap.version = 0, ""
	}
	if m.swap.refused != m.snap.Version {
		m.swap.refused = ""
	}
	due(&m.swap.retryAt)
	m.swap.conflicts = 0 // for jitter, which is 0
	past(&m.swap.ready, c.Coalesce)
	past(&m.swap.transfer, c.Coalesce)
	past(&m.swap.settle, c.SettleDelay)
	past(&m.swap.abort, c.Coalesce)

	p := &m.plan
	for id, t := range p.seen {
		past(&t, max(c.JoinDelay, c.RolloutDelay)+c.JoinDelay)
		p.seen[id] = t
	}
	due(&p.buryAt)
	past(&p.since, time.Duration(x.Pods)*c.RetryPeriod/8)
	due(&p.lookAt)
	past(&p.fresh, c.JoinDelay)
	if m.followed != m.snap.Version {
		m.followed = ""
	}
	if p.looked != m.snap.Version {
		p.looked, p.mourned = "", 0
	}
	if version, _, _ := strings.Cut(p.key, " "); version != m.snap.Version {
		p.key, p.target = "", nil
	}
}

// shift lets a tick pass for a member.
func (x *space) shift(m *mirror) {
	earlier := func(times ...*time.Duration) {
		for _, t := range times {
			if *t != 0 {
				*t--
			}
		}
	}
	if m.wake < never {
		m.wake--
	}
	earlier(&m.lease.start, &m.lease.next, &m.lease.saidAt, &m.read.retryAt, &m.watch.echo, &m.seenAt, &m.toldAt, &m.readAfter,
		&m.gather, &m.trail.doubted, &m.swap.retryAt, &m.swap.ready, &m.swap.transfer, &m.swap.settle, &m.swap.abort,
		&m.plan.buryAt, &m.plan.since, &m.plan.lookAt, &m.plan.fresh)
	for _, o := range m.watch.others {
		earlier(&o.seen)
	}
	for i := range m.slots {
		earlier(&m.slots[i].until)
	}
	for id, t := range m.plan.seen {
		earlier(&t)
		m.plan.seen[id] = t
	}
	x.clean(m)
}

// numbers visits what is renamed.
func (x *space) numbers(m *mirror, v visit) {
	self := x.leaseClass(m.cfg.Self.ID)
	v.text(self, &m.lease.mine.Version)
	v.text(self, &m.watch.version)
	v.text(self, &m.trouble.witness)
	for id, o := range m.watch.others {
		v.text(x.leaseClass(id), &o.lease.Version)
	}
	before := m.snap.Version
	v.text(classTable, &m.snap.Version)
	v.text(classTable, &m.floor)
	v.text(classTable, &m.followed)
	v.text(classTable, &m.swap.version)
	v.text(classTable, &m.swap.refused)
	v.text(classTable, &m.swap.unknown)
	v.text(classTable, &m.trail.known)
	v.text(classTable, &m.trail.begun)
	v.text(classTable, &m.trail.last)
	v.text(classTable, &m.watch.since)
	v.text(classTable, &m.plan.looked)
	if m.plan.key != "" && before != m.snap.Version {
		m.plan.key = m.snap.Version + strings.TrimPrefix(m.plan.key, before)
	}
	m.snap.Table = x.renameTable(m.snap.Table, v)
	for uid, e := range m.epochs {
		v.uint(classEpoch, &e)
		m.epochs[uid] = e
	}
	v.uint(classEpoch, &m.top)
	for i := range m.slots {
		s := &m.slots[i]
		v.uint(classEpoch, &s.epoch)
		v.uint(classEpoch, &s.heldSince)
		v.uint(classEpoch, &s.sentAt)
		v.uint(classSerial, &s.round)
	}
	v.uint(classSerial, &m.watch.serial)
	v.uint(classSerial, &m.swap.serial)
	v.order(&m.lease.saidAt)
	v.order(&m.seenAt)
	v.order(&m.toldAt)
	v.order(&m.readAfter)
}

// encoder appends in a form that tells all values apart.
type encoder []byte

func (b *encoder) int(n int) { *b = binary.AppendVarint(*b, int64(n)) }

func (b *encoder) times(ts ...time.Duration) {
	for _, t := range ts {
		b.int(int(t))
	}
}

func (b *encoder) text(ss ...string) {
	for _, s := range ss {
		b.int(len(s))
		*b = append(*b, s...)
	}
}

func (b *encoder) bools(bs ...bool) {
	for _, v := range bs {
		if v {
			*b = append(*b, 1)
		} else {
			*b = append(*b, 0)
		}
	}
}

func (b *encoder) set(m map[string]bool) {
	n := 0
	for _, in := range m {
		if in {
			n++
		}
	}
	b.int(n)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] {
			b.text(k)
		}
	}
}

func (b *encoder) snapshot(x *space, s member.Snapshot) {
	b.text(s.UID, s.Version)
	b.int(x.tableID(s.Table))
}

// encode tells members in normal form apart.
func (x *space) encode(m *mirror, b *encoder) {
	b.text(m.cfg.Self.ID)
	b.text(m.cfg.Former...)
	b.int(int(m.phase))
	b.times(m.wake)
	l := &m.lease
	b.text(l.mine.UID, l.mine.Version)
	b.times(l.start, l.next, l.saidAt)
	b.bools(l.underWay, l.failed, l.said, l.open, m.read.wanted, m.read.underWay)
	b.times(m.read.retryAt)
	w := &m.watch
	b.int(int(w.serial))
	b.bools(w.all, w.complete, w.capped, w.suspects)
	b.text(w.since)
	b.int(len(w.ids))
	b.text(w.ids...)
	b.times(w.echo, w.step)
	b.text(w.version)
	b.int(len(w.others))
	for _, id := range slices.Sorted(maps.Keys(w.others)) {
		o := w.others[id]
		b.text(id, o.lease.UID, o.lease.Version, o.lease.TableUID)
		b.int(int(o.lease.Epoch))
		b.bools(o.lease.Open, o.missing, o.pending, o.shutting)
		b.int(o.renewals)
		b.times(o.since, o.seen, o.shut)
	}
	b.snapshot(x, m.snap)
	b.text(m.known, m.floor, m.trail.known, m.trail.begun, m.trail.last)
	b.times(m.trail.doubted)
	b.set(m.gone)
	b.times(m.seenAt, m.toldAt, m.readAfter)
	b.int(len(m.epochs))
	for _, uid := range slices.Sorted(maps.Keys(m.epochs)) {
		b.text(uid)
		b.int(int(m.epochs[uid]))
	}
	b.int(int(m.top))
	b.bools(m.lapsed, m.trouble.on, m.trouble.pending, m.trouble.confirmed, m.trouble.early, m.met)
	b.text(m.trouble.witness)
	b.times(m.trouble.since, m.gather)
	for i := range m.slots {
		s := &m.slots[i]
		*b = append(*b, byte(s.state), byte(s.cause), byte(len(s.gone)))
		b.int(int(s.epoch))
		b.int(int(s.heldSince))
		b.int(int(s.sentAt))
		b.int(int(s.round))
		b.times(s.until)
	}
	b.text(m.followed, m.swap.version, m.swap.refused, m.swap.unknown, m.plan.key, m.plan.looked)
	b.bools(m.swap.underWay)
	b.int(int(m.swap.serial))
	b.times(m.swap.retryAt, m.swap.ready, m.swap.transfer, m.swap.settle, m.swap.abort)
	b.int(len(m.plan.seen))
	for _, id := range slices.Sorted(maps.Keys(m.plan.seen)) {
		b.text(id)
		b.times(m.plan.seen[id])
	}
	b.times(m.plan.buryAt, m.plan.since, m.plan.lookAt, m.plan.fresh)
	b.bools(m.plan.target != nil)
	b.int(len(m.plan.target))
	b.text(m.plan.target...)
	b.int(m.plan.mourned)
	if m.refused != nil {
		b.text(m.refused.Error())
	} else {
		b.text("")
	}
	b.set(m.buried)
	b.set(m.burying)
}
