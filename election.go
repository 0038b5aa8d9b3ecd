package rota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/internal/election"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// checkElection returns an error for options that cannot work.
func (o *Options) checkElection() error {
	switch {
	case o.LeaderElectionID == "" && o.LeaderElectionNamespace != "":
		return fmt.Errorf("LeaderElectionNamespace %q without LeaderElectionID: set both, or none",
			o.LeaderElectionNamespace)
	case o.LeaderElectionID == "":
		return nil
	case o.Group != nil:
		return errors.New("LeaderElectionID and Group: the groups of a program are rotas of their own, and only one rota " +
			"can be the candidate; migrate from leader election with one rota first, and divide it afterwards")
	}
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = o.Namespace
	}
	if reasons := validation.IsDNS1123Subdomain(o.LeaderElectionID); len(reasons) > 0 {
		return fmt.Errorf("LeaderElectionID %q: no Lease has such a name: %s", o.LeaderElectionID,
			strings.Join(reasons, "; "))
	}
	return nil
}

// electionLease is the Lease of leader election; empty: there is none to hold.
func (o *Options) electionLease() types.NamespacedName {
	return types.NamespacedName{Namespace: o.LeaderElectionNamespace, Name: o.LeaderElectionID}
}

// elector drives an election.Candidate for an incarnation (rule R20). The member itself knows nothing of it. To the
// member, a load takes long while the Lease is another's, and the gate lapses when the Lease is lost.
type elector struct {
	inc   *incarnation
	lease types.NamespacedName
	store store.Elections
	wake  chan struct{}

	mu   sync.Mutex
	core *election.Candidate
	// table is the UID of the table that names this member.
	table string
	// own is the member's own deadline, by clock.late.
	own time.Duration
	// changed is closed and replaced when the candidate's Until becomes later.
	changed chan struct{}
	until   time.Duration
	told    string // what was last told of the Lease
	// version is that of the Lease that was last seen, and renewed when it was first seen.
	version string
	renewed time.Duration
	// pace is the time between the last two renewals that were seen of the same leader; 0: none is known.
	pace   time.Duration
	leader string
	// frozen is the serial of the change of the table that removes this member, the last one; 0: none was sent.
	frozen uint64
	last   bool // that change was made
	// lapses counts how often the right to work was lost, and turns is that and the candidate's Turns.
	lapses, turns uint64
	lapsed        bool // it was lost, and that is counted
	// loaded has, by slot, what turns was when the slot's last load began that was completed.
	loaded map[slot.Slot]uint64
}

// leaderSilence is for how many of its own periods, or of this rota's RetryPeriods if those are longer, a leader may be
// silent before deletions are no longer taken for its business. After what its Lease lasts it leads no more.
const leaderSilence = 3

func holder(r *Rota) string { return names.ElectionHolder + r.Name().String() }

// newElector returns nil if there is no Lease to hold.
func newElector(i *incarnation) *elector {
	o, cfg := &i.rota.opts, &i.rota.cfg
	if o.Solo || o.LeaderElectionID == "" {
		return nil
	}
	return &elector{
		inc: i, lease: o.electionLease(), store: i.rota.store.(store.Elections),
		wake: make(chan struct{}, 1), changed: make(chan struct{}), loaded: map[slot.Slot]uint64{},
		core: election.New(election.Config{
			Holder: holder(i.rota), Lease: cfg.LeaseDuration, Deadline: cfg.RenewDeadline,
			Retry: cfg.RetryPeriod, Fence: cfg.FenceDelay, Seed: cfg.Seed,
		}),
	}
}

// run looks at the Lease, and renews it, until ctx ends.
func (e *elector) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e.mu.Lock()
		req, ok := e.core.Next(e.inc.rota.clock.now())
		at, waits := e.core.Wake()
		e.mu.Unlock()
		if ok {
			e.send(ctx, req)
			continue
		}
		wait := lookEvery
		if waits {
			wait = min(wait, max(at-e.inc.rota.now(), time.Millisecond))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-timer.C:
		}
		e.mu.Lock()
		e.settle()
		e.mu.Unlock()
	}
}

// watch hears of others that take the Lease, or clear it, until ctx ends.
func (e *elector) watch(ctx context.Context) {
	_ = e.store.WatchElection(ctx, e.lease, func(version string, r election.Record) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.core.Heard(e.inc.rota.clock.now(), version, r)
		e.settle()
	})
}

func (e *elector) send(ctx context.Context, req election.Request) {
	r := e.inc.rota
	start := r.clock.late()
	outcome, record, err := e.call(ctx, req)
	if outcome != member.OutcomeConflict {
		e.inc.complain(fmt.Sprintf("%s leader election's Lease %s", req.Verb, e.lease), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.Answer(r.clock.now(), req, start, outcome, record)
	e.settle()
}

func (e *elector) call(ctx context.Context, req election.Request) (member.Outcome, election.Record, error) {
	timeout := e.inc.rota.cfg.WriteTimeout
	if req.Verb != election.Get {
		record, outcome, err := e.store.WriteElection(ctx, e.lease, req.Record, timeout)
		return outcome, record, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	record, err := e.store.ReadElection(ctx, e.lease)
	if err != nil {
		return member.OutcomeFailed, record, err
	}
	return member.OutcomeDone, record, nil
}

// settle makes the gate's deadline, and what people are told, follow the candidate. e.mu is held.
func (e *elector) settle() {
	before := e.until
	e.until = e.core.Until()
	ended := before > 0 && (e.until == 0 || before <= e.inc.rota.clock.late())
	if ended && !e.lapsed {
		e.lapses++
	}
	e.lapsed = ended && !e.elected()
	e.turns = e.lapses + e.core.Turns()
	if e.until != before {
		e.setDeadline()
	}
	if e.until < before {
		e.inc.rota.gate.Expire() // what is in flight ends now; the incarnation finds the lapse at its next look
	}
	if e.until > before {
		close(e.changed)
		e.changed = make(chan struct{})
	}
	seen, known := e.core.Seen()
	if !known {
		return
	}
	e.noteLeader(seen)
	n := member.Notify{Reason: "Elected",
		Message: fmt.Sprintf("the rota holds leader election's Lease %s: its members work", e.lease)}
	if !e.elected() {
		n = member.Notify{Reason: "NotElected", Warning: e.told != "", Message: e.waitsFor(seen)}
	}
	if n.Message != e.told {
		e.told = n.Message
		e.inc.rota.tell(e.inc.ctx, n)
	}
}

// noteLeader tells whether another one has the Lease and renews it, so that deletions are its business. A leader that
// has not renewed for longer than usual may have died: what is deleted then, the rota reconciles. e.mu is held.
func (e *elector) noteLeader(seen election.Record) {
	r := e.inc.rota
	if seen.Version != e.version {
		e.pace = 0
		if seen.Holder == e.leader {
			e.pace = r.now() - e.renewed
		}
		e.version, e.leader, e.renewed = seen.Version, seen.Holder, r.now()
	}
	other := seen.Holder != "" && seen.Holder != holder(r) && !e.elected()
	silence := leaderSilence * max(r.cfg.RetryPeriod, e.pace)
	if seen.Duration > 0 {
		silence = min(silence, seen.Duration)
	}
	r.share.LedElsewhere(other && r.now()-e.renewed < silence)
}

// setDeadline has the gate shut at the earlier one of the two deadlines. e.mu is held.
func (e *elector) setDeadline() { e.inc.setDeadline(min(e.own, e.until), e.own) }

func (e *elector) waitsFor(seen election.Record) string {
	who := fmt.Sprintf("held by %q", seen.Holder)
	switch cfg := e.inc.rota.cfg; {
	case seen.Version == "":
		who = fmt.Sprintf("which does not exist; the rota creates it in %v unless a leader does; if one works now, it holds "+
			"another Lease, so LeaderElectionID or LeaderElectionNamespace is wrong", cfg.LeaseDuration+cfg.FenceDelay)
	case seen.Holder == "":
		who = "held by nobody"
	case seen.Holder == holder(e.inc.rota):
		who = "which the rota has to renew"
	case strings.HasPrefix(seen.Holder, names.ElectionHolder):
		who += "; that is another rota, and these two never work at once: " +
			"give one of them another LeaderElectionID if both shall work"
	}
	return fmt.Sprintf("this member works on nothing and waits for leader election's Lease %s, %s", e.lease, who)
}

// elected reports whether this member may work now. e.mu is held.
func (e *elector) elected() bool { return e.until > e.inc.rota.clock.late() }

// member tells of the member's own deadline.
func (e *elector) member(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own = at
	e.setDeadline()
}

// seen tells of a version of the table, or that it is gone (nil).
func (e *elector) seen(t *table.Table, uid string) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.table != uid {
		e.core.Quit() // what was seen by another table does not count
	}
	e.table = uid
	if t == nil {
		e.core.Quit()
	} else if _, named := t.Member(e.inc.id); named {
		e.core.Join(e.inc.rota.clock.now())
	} else {
		e.core.Quit()
	}
	e.settle()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// swapping tells of a change of the table that is about to be sent.
func (e *elector) swapping(a member.Swap) {
	if e == nil || len(a.Table.Members) > 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frozen, e.last = a.Serial, false
	e.core.Freeze()
}

// swapped tells how it ended.
func (e *elector) swapped(a member.Swapped) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.frozen != a.Serial || a.Serial == 0 {
		return
	}
	if e.last = a.Outcome == member.OutcomeDone; !e.last {
		e.frozen = 0
		e.core.Thaw()
	}
}

// release releases the Lease if this member was the last one. Nothing of it is in flight.
func (e *elector) release() {
	e.mu.Lock()
	req, ok := e.core.Release(e.inc.rota.clock.now())
	ok = ok && e.last
	e.mu.Unlock()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.inc.rota.cfg.WriteTimeout)
	defer cancel()
	log := e.inc.rota.log
	if _, _, err := e.call(ctx, req); err != nil {
		log.Info("Leader election's Lease was not released: others take it when it has run out", "lease", e.lease.String(),
			"cause", err.Error())
		return
	}
	log.Info("The last member of the rota has released leader election's Lease", "lease", e.lease.String())
}

// afresh prepares a load. waits says that it must not end before the rota holds the Lease. While another one held it,
// that one's writes were not those of the slots' former owner in the table. So the load waits for everything that there
// is, as after an expel.
//
// turns is what the elector's turns is now, for bring.
func (i *incarnation) afresh(a member.Load) (load member.Load, waits bool, turns uint64) {
	e := i.elector
	if e == nil {
		return a, false, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	waits = !e.elected()
	turned := e.core.Turned()
	// With Held the gate has lapsed. Another one may have worked since, and be gone again, between two looks at the Lease.
	if a.Held || waits || turned > 0 && i.rota.now()-turned < i.rota.cfg.LeaseDuration {
		a.Held, a.Cause = false, table.CauseExpelled
	}
	return a, waits, e.turns
}

// await waits until this member may work, and returns what turns is then. It returns false when ctx ends.
func (e *elector) await(ctx context.Context) (turns uint64, ok bool) {
	for {
		e.mu.Lock()
		elected, changed, turns := e.elected(), e.changed, e.turns
		e.mu.Unlock()
		if elected {
			return turns, true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-changed:
		}
	}
}

// loaded is a member.Loaded with what the incarnation has to know before it steps it.
type loaded struct {
	member.Loaded
	// again loads them once more: another one may have had the Lease since.
	again func()
}

// bring has load bring slots, in a goroutine of its own, once this member may work. If another one may have worked
// since turns, it is done as after an expel, and again if that happens meanwhile. What load returned last goes to the
// mailbox, unless the incarnation ends.
func (i *incarnation) bring(a member.Load, turns uint64, load func(member.Load) slot.Set) {
	e, done := i.elector, loaded{}
	i.calls.Go(func() {
		for e != nil {
			now, ok := e.await(i.ctx)
			if !ok {
				return
			}
			if now != turns {
				a.Held, a.Cause = false, table.CauseExpelled
			}
			turns = now
			if a.Slots = load(a); e.complete(a.Slots, turns) {
				break
			}
		}
		if e == nil {
			a.Slots = load(a)
		}
		done.Loaded = member.Loaded{Slots: a.Slots, Round: a.Round}
		done.again = func() { i.bring(a, turns, load) }
		i.box.put(done)
	})
}

// admit returns the event to step for slots that were loaded; false: another one may have had the Lease since, so that
// they are loaded again.
func (i *incarnation) admit(l loaded) (member.Event, bool) {
	if !i.elector.knows(l.Slots) {
		l.again()
		return nil, false
	}
	return l.Loaded, true
}

// complete notes that the slots were loaded. It returns false if turns has changed since.
func (e *elector) complete(set slot.Set, turns uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settle(); e.turns != turns {
		return false
	}
	for _, s := range set.Slots() {
		e.loaded[s] = turns
	}
	return true
}

// knows says that what another one wrote, when it had the Lease, is in the caches for these slots. If not, their next
// owner must list them.
func (e *elector) knows(set slot.Set) bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settle()
	for _, s := range set.Slots() {
		if turns, ok := e.loaded[s]; !ok || turns != e.turns {
			return false
		}
	}
	return true
}

// waiting says what all work waits for; "" if for nothing.
func (e *elector) waiting() string {
	if e == nil {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.elected() {
		return ""
	}
	seen, known := e.core.Seen()
	if !known {
		return fmt.Sprintf("this member has not seen leader election's Lease %s yet", e.lease)
	}
	return e.waitsFor(seen)
}

// setDeadline has the gate and the writes end at a time, by clock.late. own is that of the member's own Lease.
func (i *incarnation) setDeadline(at, own time.Duration) {
	i.rota.mu.Lock()
	i.rota.deadline, i.rota.own, i.rota.renewed = at, own, true
	i.rota.mu.Unlock()
	i.rota.gate.SetDeadline(at)
	i.rota.keeper.SetDeadline(at)
}
