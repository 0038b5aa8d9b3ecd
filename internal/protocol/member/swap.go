package member

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// swap is the state of changes of the table (rule R3). At most one is under way. Each is conditional on the last
// version read.
type swap struct {
	underWay bool
	serial   uint64
	// version is the version on which the swap under way is conditional.
	version string
	// refused is the version on which a swap was conditional that met a conflict. A newer one must be read first.
	refused string
	retryAt time.Duration
	// unknown is the version on which the last swap of unknown outcome was conditional. While it is the latest version,
	// the swap may still happen.
	unknown string
	// conflicts counts those in a row.
	conflicts int
	// Since when each kind of change has been waiting to be written; 0: there is none.
	ready, transfer, settle, abort, announce, label time.Duration
}

// work sends the change of the table that is due, if any.
func (m *Member) work() {
	m.deleteDeadLeases()
	if m.phase == leaving && m.unfit.err != nil && m.known != "" {
		m.stop(nil, false) // it can hand nothing over, and its Lease may be the last to tell of the highest epoch
		return
	}
	if m.recovery.on || m.unfit.err != nil {
		if m.phase == leaving {
			m.part() // its gate is shut, and no table names it as an owner
			return
		}
		m.repair()
		return
	}
	t := m.table()
	if t == nil || m.lapsed || m.lease.mine.UID == "" {
		return
	}
	m.lookAtLoads(t)
	m.lookAtCanary(t)
	m.notePins(t)
	if m.swap.underWay || m.swap.refused == m.snap.Version || !m.due(m.swap.retryAt) {
		return
	}
	if m.phase != joining && m.phase != joined && m.phase != leaving {
		return
	}
	if !m.follows() {
		return // the watch or the Leases will soon show
	}
	if m.hides(t) {
		m.read.wanted = true // the watch lags, or this is an old copy: confirm finds out
		return
	}
	d := m.fitting(t)
	if d == nil || !d.due {
		return
	}
	for _, s := range d.transfers.Slots() {
		m.slots[s].state, m.slots[s].sentAt = sent, t.Epoch
	}
	for _, id := range sortedKeys(m.toExpel) {
		_, before := t.Member(id)
		if _, after := d.next.Member(id); before && !after {
			m.note("Expelled", true,
				"member %s did not renew its Lease, its container was restarted, or somebody deleted its Lease; its slots get new "+
					"owners", id)
		}
	}
	m.noteOrders(t, d.next)
	m.noteCanary(t, d.next)
	m.send(d.next, false)
}

func (m *Member) send(t *table.Table, create bool) {
	if err := t.Valid(); err != nil {
		m.invalid(err)
		return
	}
	m.swap.underWay, m.swap.serial, m.swap.version = true, m.nextSerial(), m.snap.Version
	if create {
		m.do(CreateTable{Serial: m.swap.serial, Table: t, Timeout: m.timeout()})
		return
	}
	m.do(Swap{Serial: m.swap.serial, Table: t, UID: m.snap.UID, Version: m.snap.Version, Timeout: m.timeout()})
}

func (m *Member) swapped(e Swapped) {
	if !m.swap.underWay || e.Serial != m.swap.serial {
		return
	}
	m.swap.underWay = false
	m.swap.retryAt = 0
	if e.Outcome == OutcomeDone {
		m.swap.conflicts, m.swap.unknown = 0, ""
		m.believe(e.Snapshot, false)
		m.trail.vouch(e.Snapshot.Version)
		return
	}
	if e.Outcome == OutcomeUnknown {
		m.swap.unknown = m.swap.version
	} else {
		// It did not and will not happen. The transfers are not on their way any more.
		for i := range m.slots {
			if m.slots[i].state == sent {
				m.slots[i].state = drained
			}
		}
	}
	switch e.Outcome {
	case OutcomeConflict, OutcomeMissing:
		m.swap.refused = m.swap.version // a newer version may have been read since
		// The jitter grows, so that many writers do not keep conflicting.
		m.swap.conflicts++
		m.swap.retryAt = m.now.Mono + m.jitter(m.cfg.Coalesce/2<<min(m.swap.conflicts-1, 6))
		m.readSoon()
	case OutcomeUnknown:
		m.readSoon()
		m.swap.retryAt = m.now.Mono + m.cfg.Coalesce
	case OutcomeFailed, OutcomeDone:
		m.swap.retryAt = m.now.Mono + m.cfg.RetryPeriod/8 + m.jitter(m.cfg.RetryPeriod/8)
	}
}

// draft is a change of the table in the making.
type draft struct {
	next *table.Table
	// own says that next is a copy, so it may be changed.
	own bool
	// top is the highest epoch used by a note.
	top uint64
	// due says that the change must be written now.
	due bool
	// transfers are the slots that this change gives to their next owner.
	transfers slot.Set
	// stays are drained slots that have to open again first. This change cancels their moves, and plans none.
	stays slot.Set
	leftOut
}

// edit returns the next table, to be changed.
func (d *draft) edit() *table.Table {
	if !d.own {
		d.next, d.own = d.next.Clone(), true
	}
	return d.next
}

// supersede writes a table that differs by its epoch alone. An earlier swap on the same version has an unknown outcome
// and may still happen. This one prevents that, or finds that it did happen.
func (d *draft) supersede() {
	d.edit()
	d.due = true
}

// update changes the slots of a set.
func (d *draft) update(set slot.Set, change func(*table.Run)) {
	if !set.Empty() {
		d.edit().Update(set, change)
	}
}

// note adds a note to the table and returns its epoch. The notes of one change have an epoch for each cause.
func (d *draft) note(base uint64, cause table.Cause, versions table.Versions) uint64 {
	epoch := base + uint64(cause)
	note := d.edit().Notes[epoch]
	note.Cause = cause
	if cause == table.CauseHanded {
		note.Versions = note.Versions.Merge(versions)
	}
	d.next.Notes[epoch] = note
	d.top = max(d.top, epoch)
	return epoch
}

// noteExpel is note for slots that are taken from members held dead.
func (d *draft) noteExpel(base uint64, wait time.Duration) uint64 {
	epoch := d.note(base, table.CauseExpelled, nil)
	note := d.next.Notes[epoch]
	note.Wait = max(note.Wait, wait)
	d.next.Notes[epoch] = note
	return epoch
}

// waited starts the clock if something is waiting, and resets it otherwise. It says whether the delay has passed. If
// not, it asks for a Tick.
func (m *Member) waited(clock *time.Duration, waiting bool, delay time.Duration) bool {
	if !waiting {
		*clock = 0
		return false
	}
	if *clock == 0 {
		*clock = max(m.now.Mono, 1)
	}
	return m.due(*clock + delay)
}

// draft makes the next table. It has everything that this member wants to change, but for what is left out.
func (m *Member) draft(t *table.Table, out leftOut) *draft {
	d := &draft{next: t, leftOut: out}
	switch {
	case m.phase == joining:
		m.draftJoin(t, d)
		return d
	case m.phase == leaving:
		if m.draftLeave(t, d) {
			return d
		}
	}
	m.draftReady(t, d)
	m.draftTransfers(t, d)
	m.draftSettle(t, d)
	m.draftDuties(t, d)
	m.draftOrders(t, d)
	m.draftCanary(t, d)
	m.draftLabels(d)
	m.draftPlan(t, d)
	return d
}

func (m *Member) draftReady(t *table.Table, d *draft) {
	var set slot.Set
	more := false
	eachSlot(t, func(r table.Run) bool { return r.Next == m.cfg.Self.ID }, func(s slot.Slot, r table.Run) {
		switch m.slots[s].state { //nolint:exhaustive // the other states are not reported
		case warm:
			if !r.Ready {
				set.Add(s)
			}
		case warming:
			more = true
		}
	})
	delay := time.Duration(0)
	if more {
		delay = m.cfg.Coalesce
	}
	if m.waited(&m.swap.ready, !set.Empty(), delay) {
		d.due = true
	}
	d.update(set, func(r *table.Run) { r.Ready = true })
}

// draftTransfers gives drained slots to their next owners. It cancels moves to members that do not renew or that leave
// (rule R6).
func (m *Member) draftTransfers(t *table.Table, d *draft) {
	var set, abort slot.Set
	more := false
	mine := func(r table.Run) bool { return r.Owner == m.cfg.Self.ID && (r.Next != "" || m.givesUp(t, r)) }
	eachSlot(d.next, mine, func(s slot.Slot, r table.Run) {
		if r.Next != t.At(s).Next {
			return // this draft has just changed the plan
		}
		state := m.slots[s].state
		next, _ := t.Member(r.Next)
		going := state == drained || state == sent
		unseen := r.Next != "" && m.watch.others[r.Next] == nil // its Lease: the watch has not answered yet
		unfit := next.Leaving || m.suspends(t, r) || state == open && m.unwanted(t, r)
		switch {
		case r.Next != "" && (unfit || (going || state == draining) && !unseen && !m.renewing(r.Next)):
			abort.Add(s)
		case going && unseen:
		case going && r.Next != "" && d.noTransfers:
			d.stays.Add(s)
		case going && (r.Ready || r.Next == "" && m.givesUp(t, r)):
			set.Add(s)
		case state == draining:
			more = true
		}
	})
	wait := m.tooMuchGone(t, d, set)
	set = set.Minus(wait)
	if m.phase != leaving {
		d.stays = d.stays.Union(wait) // they open again until there is room
	}
	abort = abort.Union(d.stays)
	// What this change cancels it cannot transfer. What it transfers is drained at the version it is conditional on.
	if m.waited(&m.swap.abort, !abort.Empty(), 0) {
		d.due = true
	}
	d.update(abort, func(r *table.Run) { r.Next, r.Ready = "", false })
	delay := time.Duration(0)
	if more {
		delay = m.cfg.Coalesce
	}
	if m.waited(&m.swap.transfer, !set.Empty(), delay) {
		d.due = true
	}
	for _, s := range set.Slots() {
		l := &m.slots[s]
		r := t.At(s)
		var one slot.Set
		one.Add(s)
		if r.Next == "" {
			d.update(one, func(r *table.Run) { *r = table.Run{Slots: r.Slots, Epoch: r.Epoch} })
			continue
		}
		cause, versions := l.cause, l.versions
		if d.noVersions {
			cause, versions = table.CauseAssigned, nil
		}
		epoch := d.note(t.Epoch, cause, versions)
		d.update(one, func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: r.Next, Epoch: epoch, Unsettled: true}
		})
		m.draftGone(s, d)
	}
	d.transfers = set
}

// draftGone names the deletions that the drain of a slot left to its next owner. If this member never loaded the slot,
// the deletions that it was to reconcile stay in the table.
func (m *Member) draftGone(s slot.Slot, d *draft) {
	l := &m.slots[s]
	if l.heldSince == l.epoch {
		d.next.DropGone(s)
	}
	if !d.noGone {
		d.next.PutGone(l.gone)
	}
}

// tooMuchGone returns the slots of a set that have to wait until others have settled: their deletions have no room in
// the table, or would need a format that not every member reads.
func (m *Member) tooMuchGone(t *table.Table, d *draft, set slot.Set) (wait slot.Set) {
	room := m.goneRoom() - table.GoneSize(t.Gone)
	for _, s := range set.Slots() {
		size := table.GoneSize(m.slots[s].gone)
		switch {
		case size == 0:
		case d.noGone && m.phase == leaving: // a leaver cannot wait: it gives these deletions up, and says so
		case d.noGone || size > room || !t.Reads(table.GoneFormat):
			wait.Add(s)
		default:
			room -= size
		}
	}
	return wait
}

func (m *Member) draftSettle(t *table.Table, d *draft) {
	var set slot.Set
	mine := func(r table.Run) bool { return r.Owner == m.cfg.Self.ID && r.Unsettled }
	eachSlot(t, mine, func(s slot.Slot, r table.Run) {
		if m.slots[s].epoch == r.Epoch && m.slots[s].state == open && !d.transfers.Has(s) {
			set.Add(s)
		}
	})
	if m.waited(&m.swap.settle, !set.Empty(), m.settleDelay()) {
		d.due = true
	}
	d.update(set, func(r *table.Run) { r.Unsettled = false })
}

// settlers is how many members may say at the same time that their slots are active.
const settlers = 100

// settleDelay is SettleDelay, and where there are more than settlers members longer, by up to SettleDelay for each
// settlers of them, by the hash of the member's ID: each writes for itself, after a crash of many all at once, and
// everybody watches what is written. No member waits for it; only who looks at the table sees the move end later.
func (m *Member) settleDelay() time.Duration {
	n := m.members()
	if n <= settlers {
		return m.cfg.SettleDelay
	}
	spread := m.cfg.SettleDelay * time.Duration(n) / settlers
	return m.cfg.SettleDelay + spread*time.Duration(xxhash.Sum64String(m.cfg.Self.ID)%1024)/1024
}

// eachSlot visits the slots of the wanted runs.
func eachSlot(t *table.Table, wanted func(table.Run) bool, visit func(slot.Slot, table.Run)) {
	for _, r := range t.Runs {
		if !wanted(r) {
			continue
		}
		for s := r.Slots.First; ; s++ {
			visit(s, r)
			if s == r.Slots.Last {
				break
			}
		}
	}
}
