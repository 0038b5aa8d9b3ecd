package member

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Member is the state machine of one incarnation of a replica.
//
//	           Lease created             table names me            Leave
//	starting ───────────────▶ joining ──────────────────▶ joined ───────▶ leaving
//	   │                         │   ◀──────────────────     │               │ owns nothing, removed from the table
//	   │ Leave                   │    another table, which   │               ▼
//	   ├─────────────────────────┴──▶ does not name me       │            parting
//	   ▼                          Leave                      │               │ Lease deleted
//	 ended ◀─────────────────────────────────────────────────┴───────────────┘
//	         from any phase: expelled, Lease lost, table refused
//
// In three conditions the whole gate is shut in any phase: a lapse (rule R2's deadline has passed; R13 ends it),
// recovery (the table is missing or was replaced; R16 ends it), and an unusable table (the next valid version ends it;
// R4). Each slot also has its own state, drawn in slots.go.
//
// Invariants:
//  1. A slot is open only if the last table seen names this member as its owner at the epoch for which it was
//     activated, the member is joined or leaving, neither lapsed nor in recovery, the latest version seen is
//     valid, and a renewal reported "open" (rule R5).
//  2. At most one request each of renewal, read and swap is in flight.
//  3. Once ended, Step returns nothing.
//
// A Member is not safe for concurrent use.
type Member struct {
	cfg    Config
	rng    *rand.Rand
	now    Time
	out    []Action
	wake   time.Duration
	serial uint64
	phase  phase

	lease lease
	long  longWrites
	read  read
	watch watch

	// snap is the version of the table that the member uses. Table is nil if none was seen or it is missing.
	snap Snapshot
	// unfit is the latest version seen if the member cannot use it. snap is then the last one that it used.
	unfit unfit
	// outlives is when work that was begun before an unusable version has ended (Config.Outlives).
	outlives time.Duration
	// tableUID is the UID of the last table that was adopted. gone are the UIDs of deleted tables. They are never used
	// again.
	tableUID string
	gone     map[string]bool
	// floor is the highest version seen of the object that holds the table. seenAt is when it was first seen.
	floor  string
	seenAt time.Duration
	trail  trail
	// epochs are the highest epochs in Leases, by the table's UID. epochsAt is when one of them last rose.
	epochs   map[string]uint64
	epochsAt time.Duration
	// top is the highest epoch ever seen.
	top uint64
	// lapsed is set while the deadline has passed. readAfter is when a renewal succeeded since then, or 0. A read that
	// begins later ends the lapse.
	lapsed    bool
	readAfter time.Duration
	recovery  recovery

	// slots has an entry for each slot of the tables seen so far, including slots of duties.
	slots    slots
	prefetch prefetch
	// gather is since when slots of this member have been ready to be handed over, or 0 if none are.
	gather time.Duration
	// followed is the version of the table that the slots follow.
	followed string
	swap     swap
	// planner is the state of package planner. rules are its settings.
	planner planner.Memory
	rules   planner.Config
	// candidates caches the ranking of planners.
	candidates planner.Candidates
	// refused is the reason why this member ends although the process did not ask it to leave.
	refused error
	// toExpel are dead members whose Lease this member has deleted or found deleted (rule R7).
	toExpel map[string]bool
	// deleting are the DeleteLease requests in flight.
	deleting map[string]bool
	// deleteAt is when the next Lease may be deleted after a failure.
	deleteAt time.Duration
}

type phase uint8

const (
	starting phase = iota
	joining
	joined
	leaving
	parting
	ended
)

func (p phase) String() string {
	return [...]string{"starting", "joining", "joined", "leaving", "parting", "ended"}[p]
}

type read struct {
	wanted, underWay bool
	retryAt          time.Duration
}

// never is a time that never comes.
const never = time.Duration(math.MaxInt64)

// New returns a member. The config must be valid. The first event is a Tick.
func New(cfg Config) *Member {
	return &Member{
		cfg:      cfg,
		rng:      rand.New(rand.NewPCG(cfg.Seed, 0)), // jitter, repeatable in tests
		slots:    make(slots, cfg.Slots),
		toExpel:  map[string]bool{},
		deleting: map[string]bool{},
		gone:     map[string]bool{},
		epochs:   map[string]uint64{},
		watch:    watch{others: map[string]*other{}, longest: cfg.LongestWrite()},
		rules:    cfg.rules(),
	}
}

// Step takes an event and returns the actions to carry out, in order. The time must not be before the last
// Step's.
func (m *Member) Step(now Time, event Event) []Action {
	if m.phase == ended {
		return nil
	}
	m.now, m.wake, m.out = now, never, nil
	m.checkDeadline()
	switch e := event.(type) {
	case Tick:
	case Renewed:
		m.renewed(e)
	case TableSeen:
		m.tableSeen(e)
	case ReadFailed:
		m.read.underWay, m.read.wanted = false, true
		m.read.retryAt = now.Mono + m.jitter(m.cfg.RetryPeriod/4)
	case Swapped:
		m.swapped(e)
	case LeasesSeen:
		m.leasesSeen(e)
	case LeaseDeleted:
		m.leaseDeleted(e)
	case Warmed:
		m.slots.answered(e.Slots, e.Round, warming, warm)
	case Drained:
		m.slots.drained(e)
	case Loaded:
		m.slots.answered(e.Slots, e.Round, loading, loaded)
	case LoadsSeen:
		m.apply(planner.Learn(m.view(), e.Serial, e.Reports))
	case Lapsed:
		m.lapse()
	case LongWrites:
		m.long.until = max(m.long.until, e.Until)
	case ShortWrites:
		m.long.ended(e)
	case Leave:
		m.leave()
	}
	// The order matters. Shutting comes before reporting to others. Slots follow the table before the next table is made
	// from them.
	for _, next := range []func(){
		m.followTable, m.updatePrefetch, m.allowLong, m.keepLease, m.chooseWatch, m.work, m.keepReading,
	} {
		if m.phase != ended {
			next()
		}
	}
	return m.out
}

// Wake is the time at which the next Tick is due, as Time.Mono.
func (m *Member) Wake() time.Duration { return m.wake }

// Ended reports whether the incarnation is over.
func (m *Member) Ended() bool { return m.phase == ended }

// ID is the member's ID.
func (m *Member) ID() string { return m.cfg.Self.ID }

func (m *Member) do(a Action) { m.out = append(m.out, a) }

// at requests a Tick at the given time.
func (m *Member) at(t time.Duration) { m.wake = min(m.wake, t) }

// due reports whether t has come. If not, it requests a Tick at t.
func (m *Member) due(t time.Duration) bool {
	if m.now.Mono >= t {
		return true
	}
	m.at(t)
	return false
}

// jitter returns a random duration between 0 and d.
func (m *Member) jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(m.rng.Int64N(int64(d)))
}

func (m *Member) nextSerial() uint64 {
	m.serial++
	return m.serial
}

// table returns the table that the member uses, or nil if there is none.
func (m *Member) table() *table.Table {
	if m.recovery.on || m.unfit.err != nil {
		return nil
	}
	return m.snap.Table
}

// usable reports whether this member may work: see invariant 1.
func (m *Member) usable() bool {
	return (m.phase == joined || m.phase == leaving) && !m.lapsed && m.table() != nil
}

// stop ends the incarnation. It shuts everything first.
func (m *Member) stop(err error, rejoin bool) {
	m.shutAll()
	m.phase, m.wake = ended, never
	m.do(Stop{Err: err, Rejoin: rejoin})
}

// shutAll shuts the gate of all slots.
func (m *Member) shutAll() {
	var all slot.Set
	all.AddRange(slot.Range{First: 0, Last: slot.Slot(len(m.slots) - 1)})
	m.do(Shut{Slots: all})
}

// timeout is the timeout of a write to the table or a Lease that is sent now (rule R2).
func (m *Member) timeout() time.Duration {
	return max(time.Millisecond, min(m.longest(), m.deadline()-m.now.Late()))
}

// longest is the longest timeout of such a write. Behind a slow API server it is half of the deadline, as in
// client-go's leader election: the writes are conditional, so a late one does no harm.
func (m *Member) longest() time.Duration {
	if m.lease.slow || m.swap.slow {
		return max(m.cfg.WriteTimeout, m.cfg.RenewDeadline/2)
	}
	return m.cfg.WriteTimeout
}
