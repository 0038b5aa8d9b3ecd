package member

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// state is the state of a slot in this member.
//
//	       next is me           Warmed         owner is me, handed
//	away ─────────────▶ warming ───────▶ warm ─────────────────────▶ loading ──Loaded──▶ loaded
//	 ▲ │ owner is me, expelled                                       ▲  ▲                  │ the Lease
//	 │ └─────────────Hold──────────▶ fenced ──────FenceDelay─────────┘  │ another epoch,   │ says open
//	 │                                                                  │ or after a lapse ▼
//	 │                          next cleared: reopened                  ├──────────────── open ◀┐
//	 │                          ┌───────────────────────────────────────┼─────────────▶   │     │
//	 └── neither owner nor next │                                       │            next is ready
//	     (from any state)     sent ◀────Swap──── drained ◀───Drained─── draining ◀────────┘
//
// The gate of a slot is open in the state open. In the state draining, package gate decides which keys it admits.
type state uint8

const (
	away state = iota
	warming
	warm
	fenced
	loading
	loaded
	open
	draining
	drained
	sent
)

func (s state) String() string {
	return [...]string{"away", "warming", "warm", "fenced", "loading", "loaded", "open", "draining", "drained", "sent"}[s]
}

type slotState struct {
	state state
	// epoch is the epoch for which the slot was or is being activated.
	epoch uint64
	// heldSince is the epoch since which the stores have held the slot's objects because this member owns it. It is 0 if
	// they do not.
	heldSince uint64
	// shut is set if the slot was shut after its transfer was sent.
	shut bool
	// sentAt is the epoch of the table on which the transfer in flight is conditional.
	sentAt uint64
	// round distinguishes the answer to the latest request from answers to earlier ones.
	round uint64
	// until is when the fence wait ends.
	until time.Duration
	// versions are from the drain: the next owner must reach them. cause is the cause of the next owner's run.
	versions table.Versions
	cause    table.Cause
	// gone are the deletions that the drain left to the next owner.
	gone []table.Gone
}

// slots are the states of all slots.
type slots []slotState

// answered moves the slots that wait for this round's answer to the next state.
func (all slots) answered(set slot.Set, round uint64, from, to state) {
	for _, s := range set.Slots() {
		if int(s) < len(all) && all[s].state == from && all[s].round == round {
			all[s].state = to
			if to == loaded {
				all[s].heldSince = all[s].epoch
			}
		}
	}
}

func (all slots) drained(e Drained) {
	versions, readable := e.Versions.Readable()
	for _, s := range e.Slots.Slots() {
		if int(s) < len(all) && all[s].state == draining && all[s].round == e.Round {
			l := &all[s]
			l.state, l.versions, l.cause = drained, versions, table.CauseHanded
			l.gone = nil
			for _, g := range e.Gone {
				if g.Slot == s && g.Fits() {
					l.gone = append(l.gone, g)
				}
			}
			if l.heldSince != l.epoch || !readable || e.Stale {
				l.versions, l.cause = nil, table.CauseAssigned // without versions, the next owner lists
			}
		}
	}
}

// shut returns every slot that was open, or about to open, to the state where rule R8 starts. The gate is already shut.
// A transfer that was sent stays sent. If it failed and the slot stays, the slot is loaded before it opens.
func (all slots) shut() {
	for i := range all {
		switch s := &all[i]; s.state {
		case loading, loaded, open, draining, drained:
			s.state, s.epoch = away, 0
		case sent:
			s.shut = true
		case away, warming, warm, fenced:
		}
	}
}

// sending reports whether a transfer was sent and its outcome is not known yet.
func (all slots) sending() bool {
	for i := range all {
		if all[i].state == sent {
			return true
		}
	}
	return false
}

// byEpoch returns an Open for each epoch of the slots in a set.
func (all slots) byEpoch(set slot.Set) []Open {
	var opens []Open
	for _, s := range set.Slots() {
		epoch := all[s].epoch
		i := slices.IndexFunc(opens, func(o Open) bool { return o.Epoch == epoch })
		if i < 0 {
			i = len(opens)
			opens = append(opens, Open{Epoch: epoch})
		}
		opens[i].Slots.Add(s)
	}
	return opens
}

// followTable moves every slot towards the state that the table requires (rules R5 to R8, R10).
func (m *Member) followTable() {
	t := m.table()
	if t == nil || m.lapsed {
		return
	}
	self := m.cfg.Self.ID
	if _, member := t.Member(self); !member {
		switch m.phase {
		case joined:
			m.stop(fmt.Errorf("%w: table epoch %d does not name member %s any more", ErrExpelled, t.Epoch, self), true)
			return
		case leaving:
			if !m.swap.underWay && !m.swap.inDoubt(m.snap.Version) {
				m.part()
			}
			return
		case starting, joining, parting, ended:
		}
	} else if m.phase == joining {
		m.phase = joined
	}
	req := requests{mayDrain: m.gathered(t), mayOpen: m.lease.open}
	changed := m.followed != m.snap.Version
	m.followed = m.snap.Version
	for _, r := range t.Runs {
		if !changed && r.Owner != self && r.Next != self {
			continue // other members' slots: no change
		}
		for s := r.Slots.First; ; s++ {
			m.followSlot(t, s, r, &req)
			if s == r.Slots.Last {
				break
			}
		}
	}
	m.request(t, &req)
}

func (m *Member) followSlot(t *table.Table, s slot.Slot, r table.Run, req *requests) {
	l := &m.slots[s]
	switch self := m.cfg.Self.ID; {
	case r.Owner == self:
		m.followOwned(t, s, r, l, req)
	case r.Next == self && m.phase != leaving:
		if l.state == warming || l.state == warm {
			return
		}
		if l.state != away {
			req.shut.Add(s)
		}
		*l = slotState{state: warming}
		req.warm.Add(s)
	case l.state != away || l.heldSince != 0:
		*l = slotState{}
		req.shut.Add(s)
		req.release.Add(s)
	}
}

func (m *Member) followOwned(t *table.Table, s slot.Slot, r table.Run, l *slotState, req *requests) {
	if l.epoch != r.Epoch {
		m.activate(t, s, r, l, req)
	}
	switch l.state {
	case fenced:
		switch {
		case !m.due(l.until):
		case m.givesUp(t, r):
			req.beginDrain(t, s, r, l)
		default:
			l.state = loading
			req.addLoad(s, l, table.CauseExpelled)
		}
	case loading, loaded:
		if m.givesUp(t, r) {
			// The slot is handed on before it was loaded. Something from before a lapse may be in flight.
			req.beginDrain(t, s, r, l)
		} else if l.state == loaded {
			req.openLoaded(s, l)
		}
	case open:
		if req.mayDrain && m.drainNow(t, r) {
			req.beginDrain(t, s, r, l)
		}
	case draining:
		if r.Next == "" && !m.givesUp(t, r) {
			req.reopen(s, l)
		}
	case drained:
		if m.phase == leaving && len(l.gone) > 0 && !handsOver(t, r) {
			req.beginDrain(t, s, r, l) // the next owner is gone: drain again for the deletions
			return
		}
		if r.Next == "" && !m.givesUp(t, r) {
			req.reopen(s, l)
		}
	case sent:
		// Only a version newer than the transfer's precondition shows how the transfer ended (rule R6).
		if t.Epoch > l.sentAt {
			l.state = drained
			m.followOwned(t, s, r, l, req)
		}
	case away, warming, warm:
	}
}

// activate starts rule R8 for a slot that this member owns at a new epoch.
func (m *Member) activate(t *table.Table, s slot.Slot, r table.Run, l *slotState, req *requests) {
	*l = slotState{epoch: r.Epoch, heldSince: l.heldSince}
	req.shut.Add(s)
	note := table.Note{Cause: table.CauseAssigned}
	if r.Unsettled {
		note = t.Notes[r.Epoch]
	}
	if expelled := note.Cause == table.CauseExpelled && l.heldSince != r.Epoch; expelled || m.now.Mono < m.outlives {
		l.state, l.until = fenced, m.outlives
		if expelled {
			l.until = max(l.until, m.now.Mono+max(m.cfg.FenceDelay, note.Wait))
		}
		if m.phase != leaving && !m.prefetch.slots.Has(s) {
			req.hold.Add(s)
		}
		return
	}
	l.state = loading
	req.addLoad(s, l, note.Cause)
}

// givesUp reports whether this member gives up its slots of the run, with or without a next owner.
func (m *Member) givesUp(t *table.Table, r table.Run) bool {
	return m.phase == leaving || planner.Suspends(t, r, m.now.Wall)
}

// drainNow reports whether the slots of the run can be given up now: to a next owner that is ready and renews; without
// a next owner if this member is leaving and found none, or if the slot is a suspended duty's.
func (m *Member) drainNow(t *table.Table, r table.Run) bool {
	switch {
	case r.Next == "" && planner.Suspends(t, r, m.now.Wall):
		return true
	case r.Next == "":
		return m.phase == leaving && leaves(t, m.cfg.Self.ID)
	}
	return r.Ready && !leaves(t, r.Next) && m.watch.renewing(r.Next, m.cfg.RenewDeadline)
}

func leaves(t *table.Table, id string) bool {
	who, _ := t.Member(id)
	return who.Leaving
}

// gathered reports whether it is time to drain the slots that are ready (rule R6). An owner waits a moment until
// everything that it hands over is ready. If other members also hand over, it waits for its turn. Its slots stay open
// meanwhile, whereas drained slots would wait for their swap. Swaps that take turns do not conflict.
func (m *Member) gathered(t *table.Table) bool {
	owners := map[string]bool{}
	complete := true
	for _, r := range t.Runs {
		switch {
		case r.Next == "":
		case r.Ready:
			owners[r.Owner] = true
		case r.Owner == m.cfg.Self.ID && m.watch.renewing(r.Next, m.cfg.RenewDeadline):
			complete = false
		}
	}
	if !owners[m.cfg.Self.ID] {
		m.gather = 0
		return true // a leaver may leave slots without an owner
	}
	if !complete {
		return m.waited(&m.gather, true, m.cfg.RetryPeriod/2)
	}
	turn := time.Duration(slices.Index(slices.Sorted(maps.Keys(owners)), m.cfg.Self.ID))
	step := min(3*m.cfg.Coalesce, m.cfg.RetryPeriod/time.Duration(max(1, len(owners))))
	return m.waited(&m.gather, true, turn*step)
}

// request turns the collected requests into actions. Those that shut come first.
func (m *Member) request(t *table.Table, req *requests) {
	if !req.shut.Empty() {
		m.do(Shut{Slots: req.shut})
	}
	if !req.release.Empty() {
		m.do(Release{Slots: req.release})
	}
	if !req.hold.Empty() {
		m.do(Hold{Slots: req.hold})
	}
	if !req.warm.Empty() {
		m.do(Warm{Slots: req.warm, Round: m.round(req.warm)})
	}
	for _, g := range req.load {
		m.do(Load{
			Slots: g.slots, Round: m.round(g.slots), Cause: g.cause, Versions: t.Notes[g.epoch].Versions,
			Gone: t.GoneIn(g.slots), Held: g.held, Duties: dutiesIn(t, g.slots),
		})
	}
	for _, r := range m.slots.byEpoch(req.open) {
		m.do(r)
	}
	if !req.drain.Empty() {
		m.do(Drain{Slots: req.drain, Round: m.round(req.drain), Room: m.rules.GoneRoom()})
	}
	if !req.last.Empty() {
		m.do(Drain{Slots: req.last, Round: m.round(req.last)})
	}
}

func (m *Member) round(set slot.Set) uint64 {
	round := m.nextSerial()
	for _, s := range set.Slots() {
		m.slots[s].round = round
	}
	return round
}
