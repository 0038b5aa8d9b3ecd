package replica

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

// Election is the Lease of a leader election in which the rota is one candidate.
type Election struct {
	Lease types.NamespacedName
	// Holder is the Lease's holderIdentity while the rota holds it.
	Holder string
	Store  store.Elections
	// LedElsewhere reports whether another candidate holds the Lease and renews it, so that it handles deletions. Expire
	// makes the gate check its deadline. Both are called often and must not block.
	LedElsewhere func(bool)
	Expire       func() bool
}

// elector drives an election.Candidate for an incarnation (rule R20). The member does not know about it. To the member,
// a load takes long while another candidate holds the Lease, and the gate lapses when the Lease is lost.
type elector struct {
	Election
	id     string
	config member.Config
	clock  Clock
	log    logr.Logger
	// set sets the deadline, emit emits notices, and complain logs errors of requests.
	set      func(at, own time.Duration)
	emit     func(member.Notify)
	complain func(what string, err error)
	wake     chan struct{}
	calls    *Calls

	mu   sync.Mutex
	core *election.Candidate
	// table is the UID of the table that lists this member.
	table string
	// own is the member's own deadline, on the deadline clock.
	own time.Duration
	// changed is closed and replaced when the candidate's Until becomes later.
	changed chan struct{}
	until   time.Duration
	emitted string // the last message about the Lease
	// worked is when the rota was last elected, or when this member started.
	worked time.Duration
	// version is the version of the Lease that was last seen, and renewed is when it was first seen.
	version string
	renewed time.Duration
	// pace is the time between the last two renewals seen from the current leader, 0 if unknown.
	pace   time.Duration
	leader string
	// frozen is the serial of the change of the table that removes this member as the last one, 0 if none was sent.
	frozen uint64
	last   bool // that change succeeded
	// lapses counts how often the right to work was lost. turns is lapses plus the candidate's Turns.
	lapses, turns uint64
	lapsed        bool // the right to work is lost, and lapses counts it
	// loaded maps each slot to the value of turns at the start of its last completed load.
	loaded map[slot.Slot]uint64
}

// leaderSilence is how many renewal periods a leader may be silent before the rota handles deletions in its place. The
// period is the leader's or, if longer, the rota's RetryPeriod. A leader leads no more once its Lease has expired.
const leaderSilence = 3

// waitingPatience is how long the rota must not have been elected before that is reported. A member that joins takes up
// to a second to renew the Lease.
const waitingPatience = 5 * time.Second

func newElector(of Election, env *Env) *elector {
	cfg := &env.Config
	return &elector{
		Election: of, id: cfg.Self.ID, config: env.Config, clock: env.Clock, log: env.Log, set: env.SetDeadline,
		wake: make(chan struct{}, 1), changed: make(chan struct{}), loaded: map[slot.Slot]uint64{},
		worked: env.Clock.Mono(),
		core: election.New(election.Config{
			Holder: of.Holder, Lease: cfg.LeaseDuration, Deadline: cfg.RenewDeadline,
			Retry: cfg.RetryPeriod, Fence: cfg.FenceDelay, Seed: cfg.Seed,
		}),
	}
}

// run reads and renews the Lease until the calls end. It also watches for other candidates that take or clear it.
func (e *elector) run(calls *Calls) {
	e.calls = calls
	calls.Go(func() { e.renew(calls.ctx) })
	calls.Go(func() { e.follow(calls.ctx) })
}

// renew reads and renews the Lease until ctx ends.
func (e *elector) renew(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e.mu.Lock()
		req, ok := e.core.Next(e.clock.Now())
		at, waits := e.core.Wake()
		e.mu.Unlock()
		if ok {
			e.send(ctx, req)
			continue
		}
		wait := LookEvery
		if waits {
			wait = min(wait, max(at-e.clock.Mono(), time.Millisecond))
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

// follow watches for other candidates that take or clear the Lease, until ctx ends.
func (e *elector) follow(ctx context.Context) {
	_ = e.Store.WatchElection(ctx, e.Lease, func(version string, r election.Record) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.core.Heard(e.clock.Now(), version, r)
		e.settle()
	})
}

func (e *elector) send(ctx context.Context, req election.Request) {
	start := e.clock.Late()
	outcome, record, err := e.call(ctx, req)
	if outcome != member.OutcomeConflict {
		e.complain(fmt.Sprintf("%s leader election's Lease %s", req.Verb, e.Lease), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.Answer(e.clock.Now(), req, start, outcome, record)
	e.settle()
}

func (e *elector) call(ctx context.Context, req election.Request) (member.Outcome, election.Record, error) {
	timeout := e.config.RenewDeadline / 2 // as in controller-runtime
	if req.Verb != election.Get {
		record, outcome, err := e.Store.WriteElection(ctx, e.Lease, req.Record, timeout)
		return outcome, record, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	record, err := e.Store.ReadElection(ctx, e.Lease)
	if err != nil {
		return member.OutcomeFailed, record, err
	}
	return member.OutcomeDone, record, nil
}

// settle updates the gate's deadline and emits notices after the candidate's state has changed. e.mu is held.
func (e *elector) settle() {
	before := e.until
	e.until = e.core.Until()
	ended := before > 0 && (e.until == 0 || before <= e.clock.Late())
	if ended && !e.lapsed {
		e.lapses++
	}
	e.lapsed = ended && !e.elected()
	e.turns = e.lapses + e.core.Turns()
	if e.until != before {
		e.setDeadline()
	}
	if e.until < before {
		e.Expire() // cancel what is in flight; the incarnation finds the lapse at its next Look
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
		Message: fmt.Sprintf("the rota holds leader election's Lease %s: its members work", e.Lease)}
	switch {
	case e.elected():
		e.worked = e.clock.Mono()
	case e.clock.Mono()-e.worked < waitingPatience:
		return
	default:
		n = member.Notify{Reason: "NotElected", Warning: e.emitted != "", Message: e.waitsFor(seen)}
	}
	if n.Message != e.emitted {
		e.emitted = n.Message
		e.emit(n)
	}
}

// noteLeader reports whether another candidate holds the Lease and renews it, so that it handles deletions. A leader
// that has not renewed for longer than usual may have died; the rota then reconciles deleted objects. e.mu is held.
func (e *elector) noteLeader(seen election.Record) {
	if seen.Version != e.version {
		e.pace = 0
		if seen.Holder == e.leader {
			e.pace = e.clock.Mono() - e.renewed
		}
		e.version, e.leader, e.renewed = seen.Version, seen.Holder, e.clock.Mono()
	}
	other := seen.Holder != "" && seen.Holder != e.Holder && !e.elected()
	silence := leaderSilence * max(e.config.RetryPeriod, e.pace)
	if seen.Duration > 0 {
		silence = min(silence, seen.Duration)
	}
	e.LedElsewhere(other && e.clock.Mono()-e.renewed < silence)
}

// setDeadline shuts the gate at the earlier of the two deadlines. e.mu is held.
func (e *elector) setDeadline() { e.set(min(e.own, e.until), e.own) }

func (e *elector) waitsFor(seen election.Record) string {
	who := fmt.Sprintf("held by %q", seen.Holder)
	switch cfg := e.config; {
	case seen.Version == "":
		who = fmt.Sprintf("which does not exist; the rota creates it after %v unless a leader does; if one works now, it "+
			"holds another Lease, so LeaderElectionID or LeaderElectionNamespace is wrong", cfg.LeaseDuration+cfg.FenceDelay)
	case seen.Holder == "":
		who = "which has no holder"
	case seen.Holder == e.Holder:
		who = "which the rota has to renew"
	case strings.HasPrefix(seen.Holder, names.ElectionHolder):
		who += "; that is another rota, and these two never work at once: " +
			"give one of them another LeaderElectionID if both shall work"
	}
	return fmt.Sprintf("this member works on nothing and waits for leader election's Lease %s, %s", e.Lease, who)
}

// elected reports whether this member may work now. e.mu is held.
func (e *elector) elected() bool { return e.until > e.clock.Late() }

func (e *elector) Deadline(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own = at
	e.setDeadline()
}

func (e *elector) Seen(t *table.Table, uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.table != uid {
		e.core.Quit() // what was seen under another table does not count
	}
	e.table = uid
	if t == nil {
		e.core.Quit()
	} else if _, named := t.Member(e.id); named {
		e.core.Join(e.clock.Now())
	} else {
		e.core.Quit()
	}
	e.settle()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *elector) Swapping(a member.Swap) {
	if len(a.Table.Members) > 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frozen, e.last = a.Serial, false
	e.core.Freeze()
}

func (e *elector) Swapped(a member.Swapped) {
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

// end releases the Lease if this member was the last one.
func (e *elector) end() {
	e.mu.Lock()
	req, ok := e.core.Release(e.clock.Now())
	ok = ok && e.last
	e.mu.Unlock()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.config.WriteTimeout)
	defer cancel()
	if _, _, err := e.call(ctx, req); err != nil {
		e.log.Info("Leader election's Lease was not released: others take it when it has run out", "lease", e.Lease.String(),
			"cause", err.Error())
		return
	}
	e.log.Info("The last member of the rota has released leader election's Lease", "lease", e.Lease.String())
}

// PrepareLoad makes a load wait for everything that exists, as after an expel, if another candidate may have held the
// Lease: the table's versions do not include that candidate's writes. turn is the current value of turns.
func (e *elector) PrepareLoad(a member.Load) (load member.Load, waits bool, turn uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waits = !e.elected()
	turned := e.core.Turned()
	// Held means that the gate has lapsed. Another candidate may have worked between two reads of the Lease.
	if a.Held || waits || turned > 0 && e.clock.Mono()-turned < e.config.LeaseDuration {
		a.Held, a.Cause = false, table.CauseExpelled
	}
	return a, waits, e.turns
}

func (e *elector) Await(do func(turn uint64)) {
	e.calls.Go(func() {
		if turn, ok := e.turn(e.calls.ctx); ok {
			do(turn)
		}
	})
}

// turn waits until this member may work and returns the current value of turns. It returns false when ctx ends.
func (e *elector) turn(ctx context.Context) (turns uint64, ok bool) {
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

func (e *elector) Complete(set slot.Set, turns uint64) bool {
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

func (e *elector) UpToDate(set slot.Set) bool {
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

func (e *elector) Waiting() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.elected() {
		return ""
	}
	seen, known := e.core.Seen()
	if !known {
		return fmt.Sprintf("this member has not seen leader election's Lease %s yet", e.Lease)
	}
	return e.waitsFor(seen)
}
