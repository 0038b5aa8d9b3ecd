package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

// Options say what a World is made of. The zero value is a world with 16 slots.
type Options struct {
	// Seed is for everything that is random.
	Seed uint64
	// Slots is the number of slots. Default 16.
	Slots slot.Count
	// Duties is how many duties there may be at a time. Default 16.
	Duties int
	// Tune changes the config of every member before it starts. May be nil.
	Tune func(*member.Config)
	// Trace gets a line for everything that happens. May be nil.
	Trace func(line string)
	// Leaves returns what a drained slot leaves for its next owner, in the place of what the model knows. May be nil.
	Leaves func() table.Versions
	// LeavesGone returns the deletions that a drained slot leaves to its next owner, in the place of what the model
	// knows. May be nil.
	LeavesGone func(slot.Slot) []table.Gone
	// Load is what a slot costs the member of a pod, in thousandths of a worker. May be nil: nothing.
	Load func(pod string, s slot.Slot, at time.Duration) int64
	// Trial is what has come of a replica's reconciles in the present step of a canary, which began so long ago. May be
	// nil: members report nothing.
	Trial func(r *Replica, since time.Duration) trial.Side
	// Keep returns the Keeper of a member. rejoins is true if its process was another incarnation before. May be nil: no
	// member has one.
	Keep func(n *Node, rejoins bool) controllers.Keeper
	// Idle says what a Keeper does not do that it should, when nothing has gone wrong for a while; empty: nothing. May be
	// nil.
	Idle func(n *Node) string
}

// World is a rota, its API server and its replicas. It is not safe for concurrent use.
type World struct {
	opts  Options
	rng   *rand.Rand
	now   time.Duration
	seq   uint64
	spin  int
	queue queue

	// Objects are what the API server holds; call Sync after changing them by hand.
	Objects *memory.Objects
	synced  uint64
	// Net is what goes wrong between members and API server.
	Net Net
	// Nodes are all replicas ever started.
	Nodes []*Node
	// Counts is what happened, Coverage how much of the protocol was about it, Faults the faults so far.
	Counts   Counts
	Coverage Coverage
	Faults   []FaultSpan
	// Messages counts the traffic.
	Messages Messages

	slots      []slotHistory
	duties     map[string]*dutyHistory
	named      map[string]time.Duration // by member ID: when a table last named it
	member     map[string]time.Duration // the same, of tables that members wrote
	forged     bool                     // the table is one that no member wrote
	last       member.Snapshot          // the table's latest version
	writer     *Node                    // of the change under way; nil: somebody's hand
	bytes      versionSize              // of the latest table
	person     bool                     // the change under way is a person's command
	ghosts     map[string]string        // by member ID: UID of a Lease created late, which it does not know of
	version    uint64                   // of the objects that members work on
	edited     bool                     // somebody's hand changed the table
	violations []Violation
	tombstones map[key]*tombstone

	// wild: this is the life of a seed. Clocks differ, delays are random, there are two API servers and the objects that
	// members work on, workers try keys at random times, and users change them. Otherwise a script drives the world by
	// hand: nothing takes its time, and nobody works.
	wild bool
	// longWrites: members ask for writes that take longer than WriteTimeout.
	longWrites bool
	// The rest is for lives. paced: see pace.go. passesOn: drains may leave deletions to the slots' next owners.
	paced    bool
	passesOn bool
	// tasks is the source of chance of tasks; nil: there are none in this life.
	tasks *rand.Rand
	// garbles is the source of chance of what is heard of loads; nil: all of it.
	garbles *rand.Rand
	servers [2]server
	changed []time.Duration // by version of Objects
	objects objects
	clocks  clocks
	over    bool // no more faults
	spoiled spoiled
	// crashed and ended hear of processes that ended by Net.Fall, and by themselves.
	crashed, ended func(*Node)
}

// Violation is a broken promise.
type Violation struct {
	// Rule is a short name of what was broken, such as "two open".
	Rule    string
	Message string
}

// String tells it in a line.
func (v Violation) String() string { return v.Rule + ": " + v.Message }

// spoiled is what tests break of the model, to see that it is found: lists that are not consistent, slots of the dead
// that open without a look at the present version, and keys that nobody enqueues when their slot opens.
type spoiled struct{ oldLists, oldVersions, forgotten bool }

// epochStart is the wall clock at the beginning, in Unix seconds.
const epochStart = 1_700_000_000

// New returns a world without replicas.
func New(o Options) *World {
	if o.Slots == 0 {
		o.Slots = 16
	}
	if o.Duties == 0 {
		o.Duties = maxDuties
	}
	return &World{
		opts:    o,
		rng:     rand.New(rand.NewPCG(o.Seed, 1)), // must be repeatable
		Objects: memory.NewObjects(),
		slots:   make([]slotHistory, o.everything()),
		duties:  map[string]*dutyHistory{},
		clocks:  clocks{1, 1},
		ghosts:  map[string]string{},
		named:   map[string]time.Duration{},
		member:  map[string]time.Duration{},

		tombstones: map[key]*tombstone{},
		Messages: Messages{
			Requests: map[string]int{},
		},
	}
}

// Now is the real time since the beginning.
func (w *World) Now() time.Duration { return w.now }

// Over says that there will be no more faults.
func (w *World) Over() bool { return w.over }

// Failed says that something was violated.
func (w *World) Failed() bool { return len(w.violations) > 0 }

// Violations returns what was violated.
func (w *World) Violations() []Violation { return w.violations }

func (w *World) violate(rule, format string, args ...any) {
	v := Violation{Rule: rule, Message: fmt.Sprintf(format, args...)}
	w.violations = append(w.violations, v)
	w.logf("VIOLATION %s: %s", v.Rule, v.Message)
}

func (w *World) logf(format string, args ...any) {
	if w.opts.Trace != nil {
		w.opts.Trace(fmt.Sprintf("%9.3fs ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// between returns a random duration.
func (w *World) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

// delay is low in a world driven by hand, else random, and now and then longer.
func (w *World) delay(low, high time.Duration) time.Duration {
	if !w.wild {
		return low
	}
	d := w.between(low, high)
	if w.rng.IntN(20) == 0 {
		d *= 5
	}
	return d
}

func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// Live returns the replicas that run.
func (w *World) Live() []*Node {
	var live []*Node
	for _, n := range w.Nodes {
		if !n.Dead {
			live = append(live, n)
		}
	}
	return live
}

// Put stores a table as it is, as the starting point of a world.
func (w *World) Put(t *table.Table) {
	s, _ := w.Objects.CreateTable(t)
	t = t.Clone()
	t.UID = s.UID
	w.Objects.SwapTable(t, s.UID, s.Version)
	w.Sync()
}

// Counts says what a world went through.
type Counts struct {
	Expels, Conflicts, Handovers, Aborted, Lapses, Rejoins, Leaves, Unknown, Created, Adopted             int
	LateWrites, HeldBack, Planners, Admissions, Writes, Fenced, Steps, Restarts, Pauses, Stops, Namesakes int
	// LongWrites are those that might take longer than WriteTimeout, NeverSent those that got no connection in time.
	LongWrites, NeverSent int
	// Deleted wanderers by members, Settled slots in which something was written whose version was not known.
	Deleted, Settled int
	// Tasks are how many were started.
	Tasks int
	// Duties are how often one was begun, Finished and Failed how often one returned by itself.
	Duties, Finished, Failed int
	// Compacted are watches and lists that met a 410, Grown lists of slots, Replaced those of the whole, LookedUp
	// look-ups of single objects, Split writes before which the process stopped, Reconciled changes by users that were,
	// Excused violations that clocks beyond the bound explain, or a fence that goes by an old copy of the table.
	Compacted, Grown, Replaced, LookedUp, Split, Reconciled, Excused int
	// Sleeps of machines, Untold lapses of gates that a member was told of.
	Sleeps, Untold int
	// Inherited are deletions that were left to a slot's next owner.
	Inherited int
	// Orders are the people's commands that changed the table, OrdersEnded those that ended since a process could not read
	// of them.
	Orders, OrdersEnded int
	// Rebalanced are the commands that began moves.
	Rebalanced int
}

// Messages counts the traffic between members and API server.
type Messages struct {
	// Requests by verb and resource.
	Requests map[string]int
	// Events are watch events delivered, without first lists; Tables are those of them that bring a table; Listed are the
	// objects of first lists.
	Events, Tables, Listed int
	// TableBytes is the text of the tables delivered. It is not counted in the lives of seeds.
	TableBytes int
}
