package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

// Checked after every step:
//
//   - every version of the table is Valid, and not too large, and its epoch rises, whatever object it stands in, except
//     by hand (R4)
//   - a slot leaves a live owner by that owner's own hand only (R6), a member the table when its Lease is gone (R7)
//   - a slot's gate is open in one member at most; paused members count until their deadline (R5, R6)
//   - a gate opens for a member that owned the slot at that epoch in some version, while its Lease says "open" (R5)
//   - the epochs for which a slot is opened rise, and no two members open it for the same one (R12)
//   - no key is in flight in two members, nor what its reconciles left running, unless the earlier gate has lost it
//   - where work outlives members (Config.Outlives), a slot opens once the deadlines of others who had it open are over
//   - no write commits after the slot was opened for a later epoch elsewhere (R7), the fence provided
//   - a table that cannot be read is not written over (R4)
//   - a handed slot is loaded up to the last write of its former owner at least, and a gate opens for what is loaded
//     (R8)
//   - what is drained has no deletion left that is known, but for those that are left to the slot's next owner, and
//     those given up where the table has no room; it names the former until that owner knows of them (R15)
//   - a deadline is no later than the start of the last successful renewal allows (R2)
//   - a member knows that its gate has lapsed, as soon as it was told (R13)
//   - after a lapse, a gate opens when the table was read after a renewal (R13)
//   - a Lease is deleted as it was seen last (R7)
//   - while moves are paused, none begins between live members, and none ever begins to a drained member (R19)
//   - a member that has left owns nothing, unless the table was edited by hand (R9)
//
// In lives also:
//
//   - a slot opens in a member that has listed it, or followed it since it was listed, and that sees each object of it
//     at least as others saw it when they reconciled it, and wrote it, whether or not they were told so (R8)
//
// and once faults have ended:
//
//   - deletions are reconciled, unless a member that knew of them crashed, lost the slot or gave them up (R15)
//   - what users changed last is reconciled by a member that saw it (R8, R10, R15)
//   - package coverage finds nothing wrong with what members hold (R14)

// checks look at what a node is about to do.
type checks struct {
	w *World
	n *Node
	// outlives is until when work that it has begun may go on in a slot that it has lost, with Config.Outlives.
	outlives map[slot.Slot]time.Duration
	// loading are the rounds of the Loads under way, loaded the slots that need none.
	loading map[slot.Slot]uint64
	loaded  slot.Set
	// present are the versions at which Loads began of slots that no owner had handed over.
	present map[slot.Slot]uint64
	renewed time.Duration // the start of the last successful renewal that the member was told of
	lapse   lapse
}

// slotHistory is what is known of a slot.
type slotHistory struct {
	// epoch and opener are of the latest activation.
	epoch  uint64
	opener *Node
	// owners are by epoch.
	owners map[uint64]string
	// version is that of the last write committed.
	version uint64
}

// fenceLag is how far behind the API server's policies are.
const fenceLag = 300 * time.Millisecond

// checkWritten looks at a table that a member is about to write.
func (w *World) checkWritten(n *Node, t *table.Table) bool {
	if err := t.Valid(); err != nil {
		w.violate("valid", "%s writes an invalid table: %v", n.ID, err)
		return false
	}
	if size := t.Size(n.cfg.MaxTable); size > n.cfg.MaxTable {
		w.violate("large", "%s writes a table of %d bytes, of at most %d", n.ID, size, n.cfg.MaxTable)
	}
	return true
}

// checkChange looks at a change of the objects.
func (w *World) checkChange(c memory.Change) {
	if c.Table == nil {
		return
	}
	before := w.last
	w.last = *c.Table
	if before.Table != nil {
		w.nameAll(before.Table)
	}
	w.forged = w.writer == nil && !w.person
	t := c.Table.Table
	if w.writer != nil && before.Err != nil && before.UID == c.Table.UID {
		w.violate("overwritten", "%s writes over a table that cannot be read: %v", w.writer.ID, before.Err)
	}
	if w.writer == nil && !w.person || t == nil || before.UID != c.Table.UID {
		w.nameGone(t)
	}
	if t == nil {
		w.logf("table is missing, or no table")
		return
	}
	w.logf("table %s@%s %v", c.Table.UID, c.Table.Version, t)
	w.nameAll(t)
	switch {
	case w.person:
		w.checkOrder(before.Table, t)
	case w.writer != nil:
		w.checkTransition(before, *c.Table)
	default:
		w.edited = true
	}
	if t.UID != c.Table.UID {
		return // not adopted
	}
	for _, r := range t.Runs {
		for s := r.Slots.First; s <= r.Slots.Last && r.Owner != ""; s++ {
			h := &w.slots[s]
			if h.owners == nil {
				h.owners = map[uint64]string{}
			}
			if was, ok := h.owners[r.Epoch]; ok && was != r.Owner && w.writer != nil {
				w.violate("epoch twice", "slot %v has owner %s at epoch %d, which was %s's", s, r.Owner, r.Epoch, was)
			}
			h.owners[r.Epoch] = r.Owner
		}
	}
}

func (w *World) nameAll(t *table.Table) {
	for _, m := range t.Members {
		w.named[m.ID] = w.now
		if !w.forged {
			w.member[m.ID] = w.now
		}
	}
}

// checkTransition looks at a change of the table by a member.
func (w *World) checkTransition(before, after member.Snapshot) {
	t, old := after.Table, before.Table
	if old == nil || before.UID != after.UID {
		w.Counts.Created++
		w.Coverage.Rules[16]++
		return
	}
	if t.Epoch <= old.Epoch {
		w.violate("epoch falls", "%s raises the table's epoch from %d to %d", w.writer.ID, old.Epoch, t.Epoch)
	}
	if old.UID != before.UID {
		// A copy of another table, or a new one: its members are none. Adopted now, or cleared before.
		if t.UID == after.UID {
			w.Counts.Adopted++
			w.Coverage.Rules[16]++
		}
		return
	}
	for _, m := range old.Members {
		if _, ok := t.Member(m.ID); ok || m.ID == w.writer.ID {
			continue
		}
		w.Counts.Expels++
		w.Coverage.Rules[7]++
		if l, ok := w.Objects.Lease(m.ID); ok && l.UID != w.ghosts[m.ID] {
			w.violate("expelled with lease", "%s takes %s out of the table, whose Lease is there", w.writer.ID, m.ID)
		}
	}
	w.checkGone(old, t)
	w.checkNames(old, t)
	w.checkOrder(old, t)
	planned := false
	for s := range slot.Slot(min(t.Total(), old.Total())) {
		was, is := old.At(s), t.At(s)
		_, stays := t.Member(was.Owner)
		planned = planned || is.Next != "" && is.Next != was.Next || is.Owner != was.Owner && is.Owner != was.Next
		switch {
		case was.Owner == is.Owner:
			if was.Ready && is.Next == "" {
				w.Counts.Aborted++
				w.Coverage.Rules[6]++
			}
		case was.Owner != "" && stays && was.Owner != w.writer.ID:
			w.violate("taken", "%s takes slot %v from %s, which is a member", w.writer.ID, s, was.Owner)
		case was.Owner == w.writer.ID && is.Owner != "":
			w.Counts.Handovers++
			w.Coverage.Rules[6]++
			if next, _ := old.Member(is.Owner); !was.Ready || was.Next != is.Owner || next.ID == "" {
				w.violate("not ready", "%s gives slot %v to %s, which was not ready", w.writer.ID, s, is.Owner)
			}
		}
	}
	if planned {
		w.Coverage.Rules[17]++
	}
}

// outlive notes that work goes on in slots that this member is about to lose, or dies with, until its deadline.
func (c *checks) outlive(set slot.Set) {
	if !c.n.cfg.Outlives {
		return
	}
	busy := c.n.gate.OpenSet()
	for _, f := range c.n.Work.begun() {
		if c.n.valid(f) {
			busy.Add(f.key.slot)
		}
	}
	busy = busy.Intersect(set)
	for _, s := range busy.Slots() {
		c.outlives[s] = max(c.outlives[s], c.n.clock.real(c.n.deadline))
	}
}

// checkOpen looks at a gate that is about to be opened.
func (c *checks) checkOpen(a member.Open) {
	w := c.w
	if c.n.clock.late() >= c.n.deadline {
		return // the gate will refuse
	}
	if l, ok := w.Objects.Lease(c.n.ID); ok && !l.Open {
		w.violate("lease not open", "%s opens slots %v, but its Lease says that its gate is shut", c.n.ID, a.Slots)
	}
	for _, other := range w.Nodes {
		if other == c.n || other.Dead {
			continue
		}
		if both := other.gate.OpenSet().Intersect(a.Slots); both != (slot.Set{}) {
			w.violateAtGate("two open", "slots %v are opened by %s at epoch %d, and are open in %s",
				both, c.n.ID, a.Epoch, other.ID)
		}
		for _, f := range other.Work.begun() {
			if a.Slots.Has(f.key.slot) && other.valid(f) {
				w.violateAtGate("two in flight", "slot %v is opened by %s at epoch %d, and %s still works in it",
					f.key.slot, c.n.ID, a.Epoch, other.ID)
			}
		}
	}
	if c.lapse.on {
		w.violate("resumed unread", "slots %v are opened by %s, which did not read the table since its lapse",
			a.Slots, c.n.ID)
	}
	if early := a.Slots.Minus(c.loaded); !early.Empty() {
		w.violate("not loaded", "slots %v are opened by %s at epoch %d, and were not loaded", early, c.n.ID, a.Epoch)
	}
	for _, s := range a.Slots.Slots() {
		h := &w.slots[s]
		for _, other := range w.Nodes {
			if until := other.checks.outlives[s]; other != c.n && w.now < until {
				w.violateAtGate("outlived", "slot %v is opened by %s at epoch %d, and work that %s has begun may go on for %v",
					s, c.n.ID, a.Epoch, other.ID, until-w.now)
			}
		}
		delete(c.outlives, s) // it knows of that work, and waits for it
		if h.owners[a.Epoch] != c.n.ID {
			w.violate("open unowned", "slot %v is opened by %s at epoch %d, which is %q's",
				s, c.n.ID, a.Epoch, h.owners[a.Epoch])
		}
		if a.Epoch < h.epoch {
			w.violateAtGate("epoch falls", "slot %v is opened by %s at epoch %d, after epoch %d", s, c.n.ID, a.Epoch, h.epoch)
		}
		if a.Epoch == h.epoch && h.opener != c.n {
			w.violateAtGate("epoch twice", "slot %v is opened by %s at epoch %d, as by %s before",
				s, c.n.ID, a.Epoch, h.opener.ID)
		}
		if h.opener != nil && h.opener != c.n {
			w.Coverage.Rules[12]++
		}
		h.epoch, h.opener = a.Epoch, c.n
		if w.isDuty(s) {
			c.n.Duties.checkDuty(s, a.Epoch)
		}
	}
	if w.wild {
		a.Slots, _ = w.split(a.Slots)
		c.checkComplete(a)
	}
}

// checkAdmitted looks at a key that was just admitted.
func (c *checks) checkAdmitted(f *flight) {
	w := c.w
	for _, other := range w.Nodes {
		if other == c.n || other.Dead {
			continue
		}
		at := other.Work.flights[f.key]
		if at != nil && other.valid(at) || slices.ContainsFunc(other.Work.tasks, func(t *flight) bool {
			return t.key == f.key && other.valid(t)
		}) {
			w.violateAtGate("two in flight", "key %v is reconciled by %s and %s", f.key, c.n.ID, other.ID)
		}
	}
	if h := w.slots[f.key.slot]; h.opener != c.n || h.epoch != f.epoch {
		w.violateAtGate("admitted unowned", "key %v is admitted by %s at epoch %d, but epoch %d was opened since",
			f.key, c.n.ID, f.epoch, h.epoch)
	}
}

// begun are the flights and tasks of a node.
func (ws *workers) begun() []*flight {
	return slices.AppendSeq(slices.Clone(ws.tasks), maps.Values(ws.flights))
}

// valid says that something may still be written for a flight, as far as its process knows, or would if it ran.
func (n *Node) valid(f *flight) bool { return gate.Ended(f.ctx) == nil && n.clock.late() < n.deadline }

// fenced says that the API server refuses the node's writes: no table within the fence's lag named it.
func (w *World) fenced(n *Node) bool { return !w.names(n, true, w.named) }

// deceived says that the API server lets the node's writes pass because of a table that no member wrote: within the
// fence's lag no other one named it.
func (w *World) deceived(n *Node) bool { return !w.names(n, !w.forged, w.member) }

// names says that the table names the node, if the present one counts, or did within the fence's lag, as noted in last.
func (w *World) names(n *Node, present bool, last map[string]time.Duration) bool {
	if t := w.Objects.Table().Table; present && t != nil {
		if _, ok := t.Member(n.ID); ok {
			return true
		}
	}
	at, ever := last[n.ID]
	return ever && w.now-at <= fenceLag
}

// oldCopy excuses late writes that the fence lets pass.
const oldCopy = "an old copy of the table"

// checkWrite looks at a write that commits now. excuse is what may make it late, "" if nothing may.
func (w *World) checkWrite(n *Node, f *flight, excuse string) {
	h := &w.slots[f.key.slot]
	h.version = w.version
	w.logf("%s writes %v at epoch %d: version %d", n.ID, f.key, f.epoch, w.version)
	switch {
	case h.epoch <= f.epoch || h.opener == n:
	case excuse != "":
		w.Counts.Excused++
		w.logf("excused by %s: a late write for key %v by %s at epoch %d", excuse, f.key, n.ID, f.epoch)
	default:
		w.violateAtGate("late write", "a write for key %v by %s at epoch %d commits after %s opened the slot at epoch %d",
			f.key, n.ID, f.epoch, h.opener.ID, h.epoch)
	}
}

// checkLoad looks at what a new owner is to wait for. One that was paused in between, and has lost the slots, will not
// open them.
func (c *checks) checkLoad(a member.Load) {
	if a.Cause != table.CauseHanded || a.Held || c.w.wild {
		return // in lives checkOpen looks at what it knows
	}
	t := c.w.Objects.Table().Table
	if t == nil {
		return
	}
	owned := t.Owned(c.n.ID).Intersect(a.Slots)
	for _, s := range owned.Slots() {
		want := c.w.slots[s].version
		if got := a.Versions[website.Kind]; want > 0 && resourceversion.Compare(got, strconv.FormatUint(want, 10)) < 0 {
			c.w.violate("stale load", "slot %v is loaded by %s up to version %q, but %d was written", s, c.n.ID, got, want)
		}
	}
}

// checkDrain counts drains that have to wait.
func (c *checks) checkDrain(a member.Drain) {
	held := false
	for _, s := range a.Slots.Slots() {
		pending := c.n.Work.pending(s)
		if pending || c.n.gate.InFlightIn(s) > 0 {
			c.w.Counts.HeldBack++
			held = true
		}
		if pending {
			c.w.Coverage.Rules[15]++
		}
	}
	if held {
		c.w.logf("%s's drain is held back", c.n.ID)
	}
}

// beginLoad notes that the stores are to load slots; endLoad that they have, if no later Load is under way. They have
// them until Release, whether the gate is open or not.
func (c *checks) beginLoad(a member.Load) {
	c.loaded = c.loaded.Minus(a.Slots)
	for _, s := range a.Slots.Slots() {
		c.loading[s] = a.Round
		delete(c.present, s)
		switch handed := number(a.Versions[website.Kind]); {
		case a.Held:
		case a.Cause == table.CauseHanded && handed > 0:
			c.present[s] = handed
		default:
			c.present[s] = c.w.version
		}
	}
}

func (c *checks) endLoad(set slot.Set, round uint64) {
	for _, s := range set.Slots() {
		if c.loading[s] == round {
			c.loaded.Add(s)
		}
	}
}

// checkStop looks at what a member leaves behind.
func (c *checks) checkStop(a member.Stop) {
	t := c.w.Objects.Table().Table
	if a.Err != nil || t == nil || c.w.edited {
		return
	}
	if owned := t.Owned(c.n.ID); !owned.Empty() {
		c.w.violate("left owning", "%s has left, and the table says that it owns slots %v", c.n.ID, owned)
	}
}

// checkDeadline looks at until when a member is about to work.
func (c *checks) checkDeadline(a member.Deadline) {
	if latest := c.renewed + c.n.cfg.RenewDeadline; a.At > latest {
		c.w.violate("deadline", "%s means to work until %v, but its last renewal began at %v", c.n.ID, a.At, c.renewed)
	}
}

// lapse is what a member was told since its deadline passed: it is over when the table was read after a renewal.
type lapse struct {
	on, renewed bool
	at          time.Duration // of the first renewal
}

// heard notes what the member is about to be told.
func (c *checks) heard(e member.Event) {
	switch e := e.(type) {
	case member.Loaded:
		c.endLoad(e.Slots, e.Round)
	case member.Renewed:
		if e.Outcome != member.OutcomeDone {
			return
		}
		c.renewed = e.Start
		if c.lapse.on && !c.lapse.renewed {
			c.lapse.renewed, c.lapse.at = true, c.n.clock.mono()
		}
	case member.TableSeen:
		if e.Consistent && c.lapse.renewed && e.Begun >= c.lapse.at {
			c.lapse = lapse{}
		}
	}
}
