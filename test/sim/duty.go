package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Duties (rule R18). A duty has no objects. The production Duties run it: a flight that lasts until the slot drains or
// is lost, and writes now and then. Some return by themselves, of these half with an error.

// maxDuties is how many duties a world may have at a time by default.
const maxDuties = 16

// everything is the slots of a world, those of duties included.
func (o *Options) everything() slot.Count { return o.Slots + slot.Count(o.Duties) }

func (w *World) isDuty(s slot.Slot) bool { return int(s) >= int(w.opts.Slots) }

// all are the slots of a world.
func (w *World) all() slot.Set {
	return slot.SetOf(slot.Range{Last: slot.Slot(w.opts.everything() - 1)})
}

// split returns the hash slots and the duties of a set.
func (w *World) split(set slot.Set) (hash, duties slot.Set) {
	hash = set.Intersect(w.opts.Slots.All())
	return hash, set.Minus(hash)
}

// duties are the duties of a node.
type duties struct {
	w *World
	n *Node
	*duty.Duties
	// names are those that a Load told of.
	names map[slot.Slot]string
	// awaited are contexts, and what is to be done when they have ended.
	awaited []awaited
	// last are the last runs that have ended, by name.
	last map[string]lastRun
}

type awaited struct {
	ctx context.Context //nolint:containedctx // it is watched
	do  func()
}

// lastRun is how a run of a duty ended.
type lastRun struct {
	epoch uint64
	at    time.Duration
	err   error
	// failures are how many failed in a row at that epoch.
	failures int
}

// errFailed is what runs return that fail.
var errFailed = errors.New("the duty has failed")

// takeDuties declares what a node can do.
func (ds *duties) takeDuties() {
	ds.names, ds.last = map[slot.Slot]string{}, map[string]lastRun{}
	ds.Duties = duty.New(duty.Env{
		Gate: ds.n.gate, Log: logr.Discard(), Now: ds.n.clock.mono,
		After: func(wait time.Duration, do func()) {
			ds.w.after(wait, func() { ds.n.local(func() { ds.n.answered(do) }) })
		},
		AfterFunc: func(ctx context.Context, do func()) {
			ds.awaited = append(ds.awaited, awaited{ctx, do})
		},
		Caches: noCaches{}, HeldBack: func(slot.Set) []string { return nil },
	})
	for name := range strings.SplitSeq(ds.n.cfg.Self.Duties, ",") {
		if name == "" {
			continue
		}
		err := ds.Declare(name, func(ctx context.Context, done func(error)) { ds.beginDuty(ctx, name, done) })
		if err != nil {
			panic(err)
		}
	}
}

// noCaches are the caches of duties that read in none.
type noCaches struct{}

func (noCaches) LoadDuties(context.Context, table.Cause, table.Versions) {}

func (noCaches) ReleaseDuties(slot.Set) {}

// dutyHolder has the duties of a node. In scripts it answers after a moment, unless that is held.
type dutyHolder struct {
	*duty.Duties
	n *Node
}

var _ replica.Holder = dutyHolder{}

func (h dutyHolder) Warm(set slot.Set, done func(held slot.Set)) {
	h.n.Link.answers(Warm, func() { done(set) })
}

func (h dutyHolder) Expect(a member.Load, later bool) {
	maps.Copy(h.n.Duties.names, a.Duties)
	h.Duties.Expect(a, later)
}

// Load answers after a while. There is nothing to list, but caches of other kinds have to catch up.
func (h dutyHolder) Load(a member.Load, done func(held slot.Set)) {
	h.n.Link.answers(Load, func() { done(a.Slots) })
}

func (h dutyHolder) Open(set slot.Set, epoch uint64) {
	h.Duties.Open(context.Background(), set, epoch)
	h.n.Work.cancelled()
}

func (h dutyHolder) CatchUp(_ slot.Set, done func()) { h.n.Link.whenReleased(Drain, done) }

func (h dutyHolder) Drain(d replica.Drain) (look func() (more bool)) {
	reviews := h.Duties.Drain(d)
	h.n.Work.cancelled()
	return func() bool {
		if !h.n.w.wild {
			return false // a script says what happens
		}
		more := reviews()
		h.n.Work.cancelled() // a leaver may have cut some short
		return more
	}
}

func (h dutyHolder) Shut(set slot.Set) {
	h.Duties.Shut(set)
	h.n.Work.cancelled()
}

// dutyHistory is what is known of a duty, whatever its slot.
type dutyHistory struct {
	epoch  uint64
	opener *Node
	slot   slot.Slot
}

// beginDuty begins a run of a duty.
func (ds *duties) beginDuty(ctx context.Context, name string, done func(error)) {
	by, _ := work.AdmittedBy(ctx, ds.n.gate)
	epoch, _ := gate.EpochFrom(ctx)
	f := &flight{key: key{by.Slot, 0}, epoch: epoch, ctx: ctx, duty: name, done: done}
	for _, k := range ds.n.Work.flying() {
		if ds.n.Work.flights[k].duty == name {
			ds.w.violate("duty twice", "%s begins duty %s in slot %v, and does it in slot %v", ds.n.ID, name, by.Slot, k.slot)
		}
	}
	if last := ds.last[name]; last.epoch == epoch && last.err == nil && last.at > 0 {
		ds.w.violate("duty again", "%s begins duty %s at epoch %d, at which it has finished", ds.n.ID, name, epoch)
	}
	ds.n.checks.checkAdmitted(f)
	ds.n.Work.flights[f.key] = f
	ds.w.Counts.Duties++
	runs := ds.w.Counts.Duties
	f.slow = ds.w.wild && runs%20 == 0 // it takes long to return
	ds.dutyWrites(f)
	if ds.w.wild && runs%3 == 1 { // it returns by itself
		if runs%2 > 0 {
			f.err = errFailed
		}
		ds.w.after(ds.w.between(time.Second, 30*time.Second), func() { ds.n.local(func() { ds.n.Work.finish(f) }) })
	}
}

// dutyWrites has a duty write now and then.
func (ds *duties) dutyWrites(f *flight) {
	ds.w.after(ds.w.delay(500*time.Millisecond, 3*time.Second), func() {
		ds.n.local(func() {
			if !f.over && f.ctx.Err() == nil {
				ds.n.Work.write(f)
				ds.dutyWrites(f)
			}
		})
	})
}

// dutyEnded tells production that a run has returned.
func (ds *duties) dutyEnded(f *flight) {
	if f.ctx.Err() == nil {
		last := lastRun{epoch: f.epoch, at: ds.w.now, err: f.err}
		if f.err == nil {
			ds.w.Counts.Finished++
		} else {
			ds.w.Counts.Failed++
			last.failures = 1
			if before := ds.last[f.duty]; before.epoch == f.epoch {
				last.failures += before.failures
			}
		}
		ds.last[f.duty] = last
	}
	ds.n.answered(func() { f.done(f.err) })
}

// dutiesEnd looks for contexts of duties that have ended.
func (ds *duties) dutiesEnd() {
	var ended []func()
	ds.awaited = slices.DeleteFunc(ds.awaited, func(a awaited) bool {
		over := a.ctx.Err() != nil
		if over {
			ended = append(ended, a.do)
		}
		return over
	})
	for _, do := range ended {
		do()
	}
}

// returns has a duty return a moment after its context has ended.
func (ds *duties) returns(f *flight) {
	if f.returning {
		return
	}
	f.returning = true
	wait := ds.w.delay(time.Millisecond, 300*time.Millisecond)
	if f.slow {
		wait = ds.w.between(time.Second, 20*time.Second)
	}
	ds.w.after(wait, func() { ds.n.local(func() { ds.n.Work.finish(f) }) })
}

// Does says whether the node does the duty of that name now.
func (ds *duties) Does(name string) bool {
	for s, is := range ds.names {
		if f := ds.n.Work.flights[key{s, 0}]; is == name && ds.has(s) && f != nil && f.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// Stick has the duty of a slot go on until Land, whatever its context says. It says whether the node does it.
func (ds *duties) Stick(s slot.Slot) bool {
	f := ds.n.Work.flights[key{s, 0}]
	if f != nil {
		f.stuck, f.table = true, ds.w.Objects.Table().UID
	}
	return f != nil
}

// checkDuty looks at a duty that is about to be opened: it may have had another slot before.
func (ds *duties) checkDuty(s slot.Slot, epoch uint64) {
	w, name := ds.w, ds.names[s]
	if name == "" {
		w.violate("nameless duty", "%s opens slot %v, and was not told of which duty", ds.n.ID, s)
		return
	}
	if !strings.Contains(","+ds.n.cfg.Self.Duties+",", ","+name+",") {
		w.violate("unable", "%s opens slot %v of duty %s, which it cannot do", ds.n.ID, s, name)
	}
	h := w.duties[name]
	if h == nil {
		h = &dutyHistory{}
		w.duties[name] = h
	}
	if h.opener != nil && h.slot != s && h.opener != ds.n && h.opener.Duties.has(h.slot) &&
		h.opener.Duties.names[h.slot] == name {
		w.violateAtGate("two open", "duty %s is opened by %s in slot %v, and is open in %s in slot %v",
			name, ds.n.ID, s, h.opener.ID, h.slot)
	}
	if epoch < h.epoch {
		w.violateAtGate("epoch falls", "duty %s is opened by %s at epoch %d, after epoch %d", name, ds.n.ID, epoch, h.epoch)
	}
	if h.opener != nil && h.opener != ds.n {
		w.Coverage.Rules[18]++
	}
	*h = dutyHistory{epoch: epoch, opener: ds.n, slot: s}
}

// has says whether the slot is open.
func (ds *duties) has(s slot.Slot) bool {
	open := ds.n.Open()
	return open.Has(s)
}

// checkNames looks at a change of the table by a member: the name of a duty does not change while somebody has it.
func (w *World) checkNames(old, t *table.Table) {
	for i := range max(len(old.Duties), len(t.Duties)) {
		s := slot.Slot(int(t.Slots) + i)
		was, is := old.Duty(s), t.Duty(s)
		if was == "" || was == is {
			continue
		}
		owner := old.At(s).Owner
		if _, stays := t.Member(owner); owner != "" && stays && owner != w.writer.ID {
			w.violate("taken", "%s takes duty %s from %s, which is a member", w.writer.ID, was, owner)
		}
	}
}

// dutiesUnsettled says what is not as it should be with duties; empty: all is well. fair: no member is on probation.
func (w *World) dutiesUnsettled(t *table.Table, fair bool) string {
	suspended := t.Older != 0 && w.Wall()-t.Older < 605
	can := t.Can()
	load := t.DutyCounts()
	mixed := false
	for _, m := range t.Members {
		n := w.live(m.ID)
		mixed = mixed || m.Build != t.Members[0].Build
		if n == nil || suspended {
			continue
		}
		full := t.Total() == int(t.Slots)+slot.MaxDuties && !slices.Contains(t.Duties, "")
		if want := n.cfg.Self.Duties; t.Reads(table.DutyFormat) && m.Duties != want && !full {
			return fmt.Sprintf("%s announces duties %q, and can do %q", m.ID, m.Duties, want)
		}
	}
	for i, name := range t.Duties {
		s := slot.Slot(int(t.Slots) + i)
		owner := t.At(s).Owner
		if name == "" || suspended {
			continue
		}
		if owner == "" {
			return fmt.Sprintf("nobody has duty %s", name)
		}
		n := w.live(owner)
		f := n.Work.flights[key{s, 0}]
		if does := f != nil && f.duty == name && f.ctx.Err() == nil; !does && !n.Duties.rests(name, t.At(s).Epoch) {
			return fmt.Sprintf("%s does not do its duty %s", owner, name)
		}
		for _, m := range t.Members {
			if fair && !mixed && can(m, s) && load[m.ID]+2 <= load[owner] {
				return fmt.Sprintf("duty %s is done by %s, which has %d, and %s has %d", name, owner, load[owner], m.ID, load[m.ID])
			}
		}
	}
	return ""
}

// rests says that a duty has finished, or may still wait to be run again: production waits for a second, and twice as
// long with each failure, and may be late by as much here.
func (ds *duties) rests(name string, epoch uint64) bool {
	last := ds.last[name]
	if last.at == 0 || last.epoch != epoch {
		return false
	}
	return last.err == nil || ds.w.now-last.at < 2*time.Second<<min(last.failures-1, 8)+time.Second
}
