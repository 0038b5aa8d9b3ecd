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
	// Holder is what the Lease has while the rota holds it.
	Holder string
	Store  store.Elections
	// LedElsewhere is told whether another one has the Lease and renews it, so that deletions are its business. Expire has
	// the gate look at its deadline. Both must not block, and are called often.
	LedElsewhere func(bool)
	Expire       func() bool
}

// elector drives an election.Candidate for an incarnation (rule R20). The member itself knows nothing of it. To the
// member, a load takes long while the Lease is another's, and the gate lapses when the Lease is lost.
type elector struct {
	Election
	id     string
	config member.Config
	clock  Clock
	log    logr.Logger
	// set sets the deadline, tell tells people. complain is told of errors of requests.
	set      func(at, own time.Duration)
	emit     func(member.Notify)
	complain func(what string, err error)
	wake     chan struct{}
	calls    *Calls

	mu   sync.Mutex
	core *election.Candidate
	// table is the UID of the table that names this member.
	table string
	// own is the member's own deadline, on the clock of deadlines.
	own time.Duration
	// changed is closed and replaced when the candidate's Until becomes later.
	changed chan struct{}
	until   time.Duration
	emitted string // what was last told of the Lease
	// worked is when the rota was last elected, or when this member began.
	worked time.Duration
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

// waitingPatience is for how long the rota must not have been elected before that is told. A member that joins takes up to
// a second to renew the Lease.
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

// run looks at the Lease, and renews it, until the calls end. It hears of others that take it, or clear it.
func (e *elector) run(calls *Calls) {
	e.calls = calls
	calls.Go(func() { e.renew(calls.ctx) })
	calls.Go(func() { e.follow(calls.ctx) })
}

// renew looks at the Lease, and renews it, until ctx ends.
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

// follow hears of others that take the Lease, or clear it, until ctx ends.
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

// settle makes the gate's deadline, and what people are told, follow the candidate. e.mu is held.
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
		e.Expire() // what is in flight ends now; the incarnation finds the lapse at its next look
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

// noteLeader tells whether another one has the Lease and renews it, so that deletions are its business. A leader that
// has not renewed for longer than usual may have died: what is deleted then, the rota reconciles. e.mu is held.
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

// setDeadline has the gate shut at the earlier one of the two deadlines. e.mu is held.
func (e *elector) setDeadline() { e.set(min(e.own, e.until), e.own) }

func (e *elector) waitsFor(seen election.Record) string {
	who := fmt.Sprintf("held by %q", seen.Holder)
	switch cfg := e.config; {
	case seen.Version == "":
		who = fmt.Sprintf("which does not exist; the rota creates it after %v unless a leader does; if one works now, it "+
			"holds another Lease, so LeaderElectionID or LeaderElectionNamespace is wrong", cfg.LeaseDuration+cfg.FenceDelay)
	case seen.Holder == "":
		who = "held by nobody"
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
		e.core.Quit() // what was seen by another table does not count
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

// Afresh makes a load wait for everything that there is, as after an expel, if another one may have held the Lease:
// that one's writes were not those of the slots' former owner in the table. turn is what turns is now.
func (e *elector) Afresh(a member.Load) (load member.Load, waits bool, turn uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waits = !e.elected()
	turned := e.core.Turned()
	// With Held the gate has lapsed. Another one may have worked since, and be gone again, between two looks at the Lease.
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

// turn waits until this member may work, and returns what turns is then. It returns false when ctx ends.
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
