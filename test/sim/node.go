package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

// Replica is what outlives the incarnations of a process: a container of a pod.
type Replica struct {
	Pod, PodUID, Container, Build string
	Weight                        int
	// MaxFormat is the newest table format that it reads; 0: the program's.
	MaxFormat int
	// Duties are the names of the duties that it can do, separated by commas.
	Duties string
	// Labels are those that pins may ask for, as in table.Member.
	Labels       string
	incarnations int
	// Gone: it is not to be started again.
	Gone bool
}

// Node is one incarnation: a process start.
type Node struct {
	// Stale: others may have written in the slots. Drains are answered so, and loads do not count.
	Stale bool
	// Mute: it publishes no new report of its loads.
	Mute bool

	w       *World
	Replica *Replica
	ID      string
	// Dead: the process has ended. Stopped is the member's last word, if it had one.
	Dead    bool
	Stopped *member.Stop
	// Paused: nothing runs in the process; Leaving: it got SIGTERM.
	Paused, Leaving bool

	cfg    member.Config
	member *member.Member
	gate   *gate.Gate
	long   gate.LongWrites
	rate   float64       // of its monotonic clock
	zero   time.Duration // its monotonic clock at since: the world's beginning, or when its rate changed
	since  time.Duration
	skew   int64 // of its wall clock, in seconds

	driver  *replica.Driver
	state   *replica.State
	later   []func() // of the process, while it is paused
	running bool
	lapsed  bool                     // the last event was Lapsed
	halt    func(member.Action) bool // see HaltBefore
	// In paced worlds: busy until it goes on with what it has paid for in time; crowded is until when that takes long.
	busy, paid bool
	crowded    time.Duration
	// asleep: the machine sleeps since sleptFrom, by clock; slept is for how long it did before.
	asleep           bool
	slept, sleptFrom time.Duration
	wake             uint64
	deadline         time.Duration // of the gate, by its own clock
	renewed          time.Duration // the start of the last successful renewal that the member was told of
	lapse            lapse
	planner          bool

	tables, leases *Feed
	held, astray   map[string][]func()
	lose           map[string]int
	bad            map[string]spell
	slow           time.Duration // how long a page of a list takes
	work           workers
	duties         duties
	informer       informer
	// outlives is until when work that it has begun may go on in a slot that it has lost, with Config.Outlives.
	outlives   map[slot.Slot]time.Duration
	record     *ledger.Record
	reported   reporting
	server     int           // that answers it, in lives
	deaf, mute time.Duration // until then no answers reach it, or no requests of it arrive
	// loading are the rounds of the Loads under way, loaded the slots that none is needed for.
	loading map[slot.Slot]uint64
	loaded  slot.Set
	// present are the versions at which Loads began of slots that no owner had handed over.
	present map[slot.Slot]uint64
	// Notes are the reasons of its Notify actions.
	Notes []string
	// Holds, Warms and Releases are the slots of such actions, Loads those of the Load ones that were not held.
	Holds, Warms, Releases, Loads int
}

// quick is how long a page of a list takes in the best case.
const quick = 20 * time.Millisecond

// Start starts a replica's next incarnation.
func (w *World) Start(r *Replica) *Node { return w.start(r, nil, replica.NewState()) }

// start starts an incarnation in a process that was other incarnations before.
func (w *World) start(r *Replica, former []string, state *replica.State) *Node {
	for _, n := range w.Nodes {
		if n.Replica.Pod == r.Pod {
			r.incarnations = max(r.incarnations, n.Replica.incarnations) // a namesake
		}
	}
	r.incarnations++
	n := &Node{
		w: w, Replica: r, ID: fmt.Sprintf("%s-%d", r.Pod, r.incarnations), rate: 1, held: map[string][]func(){},
		astray: map[string][]func(){}, lose: map[string]int{}, bad: map[string]spell{}, slow: quick, state: state,
	}
	if w.wild {
		n.rate = w.clocks.rate(w.rng)
		n.server = w.rng.IntN(len(w.servers))
		n.zero = w.between(0, time.Hour)
		n.skew = int64(w.rng.IntN(3)) - 1
	}
	n.cfg = member.Config{
		Self: table.Member{ID: n.ID, Pod: r.Pod, PodUID: r.PodUID, Container: r.Container, Build: r.Build, Weight: r.Weight,
			Duties: r.Duties, Labels: r.Labels},
		Slots: w.opts.Slots, Seed: w.rng.Uint64(), Former: former,
	}
	if w.opts.Tune != nil {
		w.opts.Tune(&n.cfg)
	}
	n.cfg.SetDefaults()
	if r.MaxFormat > 0 {
		n.cfg.Self.MaxFormat = r.MaxFormat
	}
	if err := n.cfg.Validate(); err != nil {
		panic(err)
	}
	n.member = member.New(n.cfg)
	n.gate = gate.New(w.opts.everything(), n.late)
	n.employ()
	n.record, n.outlives = n.recorded(), map[slot.Slot]time.Duration{}
	n.takeDuties()
	n.drive()
	n.loading, n.present = map[slot.Slot]uint64{}, map[slot.Slot]uint64{}
	w.Nodes = append(w.Nodes, n)
	w.logf("%s starts, clock rate %.2f", n.ID, n.rate)
	n.followTable()
	if w.wild {
		n.informer.start(n)
		n.startWork()
	}
	n.post(member.Tick{})
	return n
}

// drive makes the node's driver.
func (n *Node) drive() {
	n.state.Begin(n.ID, n.late())
	n.driver = replica.NewDriver(replica.DriverEnv{
		Config: n.cfg, Member: n.member, Clock: ownClock{n}, State: n.state, Parts: n.parts(),
		Turns: turns{replica.Always{Set: n.setDeadline}, n}, Send: requests{n}, Watch: observer{n}, Expire: n.expires,
		Long: &n.long, Versions: n.leaves, Settle: n.settle,
		After: func(wait time.Duration, do func()) {
			n.w.after(wait, func() {
				n.local(func() {
					if n.Stopped == nil {
						n.answered(do)
					}
				})
			})
		},
		Emit: n.notify, LeaveTimeout: leaveTimeout,
	})
}

// leaveTimeout is how long a member may take to leave.
const leaveTimeout = 20 * time.Second

// turns are those of members that may always work, unless Stale says something else.
type turns struct {
	replica.Always
	n *Node
}

func (t turns) UpToDate(slot.Set) bool { return !t.n.Stale }

// observer looks at what a node's member is told.
type observer struct{ n *Node }

func (o observer) Event(e member.Event) {
	n := o.n
	n.w.Counts.Steps++
	n.heard(e)
	if _, tick := e.(member.Tick); !tick {
		n.w.logf("%s ← %v", n.ID, e)
	}
	_, n.lapsed = e.(member.Lapsed)
}

func (observer) Action(member.Action) {}

func (observer) Seen(member.Snapshot) {}

// ownClock is the node's clock, for its driver.
type ownClock struct{ n *Node }

func (c ownClock) Now() member.Time { return c.n.time() }

func (c ownClock) Mono() time.Duration { return c.n.mono() }

func (c ownClock) Late() time.Duration { return c.n.late() }

// clock is the node's own clock, which counts while its machine sleeps; mono is its monotonic one, which does not.
func (n *Node) clock() time.Duration {
	return n.zero + time.Duration(math.Floor(float64(n.w.now-n.since)*n.rate))
}

func (n *Node) mono() time.Duration { return n.clock() - n.sleeps() }

// late is the clock by which the node's deadlines are measured.
func (n *Node) late() time.Duration { return n.time().Late() }

// real is when the node's clock will show the given time.
func (n *Node) real(clock time.Duration) time.Duration {
	return n.since + time.Duration(math.Ceil(float64(clock-n.zero)/n.rate)) + 1
}

func (n *Node) time() member.Time {
	return member.Time{Mono: n.mono(), Ahead: n.sleeps(), Wall: n.w.Wall() + n.skew}
}

// local runs do in the process: once it is not paused, never if it has ended.
func (n *Node) local(do func()) {
	switch {
	case n.Dead:
	case n.Paused:
		n.later = append(n.later, do)
	default:
		do()
	}
}

// post hands an event to the member.
func (n *Node) post(e member.Event) { n.answered(func() { n.driver.Post(e) }) }

// answered calls what calls the driver back, and handles what comes of it.
func (n *Node) answered(do func()) {
	if n.Dead {
		return
	}
	do()
	n.run()
}

// run has the driver handle what has come.
func (n *Node) run() {
	if n.running {
		return
	}
	n.running = true
	for !n.Paused && !n.Dead && !n.busy && n.driver.Ready() {
		if n.paced() {
			continue
		}
		a := n.driver.Pending()
		if a != nil {
			if n.halt != nil && n.halt(a) {
				n.halt = nil
				n.Pause(0)
				continue
			}
			n.decided(a)
		}
		n.driver.Next()
		if stop := n.driver.Stopped(); stop != nil && n.Stopped == nil {
			n.stop(*stop)
		}
		n.checkTold()
		if a == nil {
			continue
		}
		if !n.w.paced && n.w.chance(n.w.Net.Stall) {
			n.Pause(n.w.between(0, 20*time.Second))
		}
		if n.w.chance(n.w.Net.Fall) && !n.Dead {
			n.Crash()
			n.w.crashed(n)
		}
	}
	n.running = false
	n.tasksEnd()
	if !n.Paused && !n.Dead && !n.busy {
		n.planTick()
	}
}

// expires has the gate look at its deadline.
func (n *Node) expires() bool {
	if n.Dead || !n.gate.Expire() {
		return false
	}
	n.w.Counts.Untold++
	n.cancelled()
	return true
}

// checkTold looks at a member that was told that its gate has lapsed.
func (n *Node) checkTold() {
	if !n.lapsed || n.driver.Pending() != nil {
		return
	}
	n.lapsed = false
	if !n.Dead && n.gate.Expire() {
		n.w.violate("lapse unknown", "%s was told that its gate has lapsed, and takes slots for open", n.ID)
	}
}

func (n *Node) setDeadline(at, _ time.Duration) {
	n.gate.SetDeadline(at)
	n.deadline = at
	n.cancelled()
	n.w.at(n.real(at), func() { n.local(n.expire) })
}

func (n *Node) planTick() {
	n.wake++
	if n.Stopped != nil {
		return
	}
	if wake, mine := n.member.Wake(), n.wake; wake < math.MaxInt64 {
		n.w.at(n.real(wake+n.sleeps()), func() {
			if n.wake == mine && !n.Paused {
				n.answered(func() { n.driver.Tick() })
			}
		})
	}
}

// Pause stops the process for d, or until Resume if d is 0.
func (n *Node) Pause(d time.Duration) {
	if n.Dead || n.Paused {
		return
	}
	n.w.Counts.Pauses++
	n.w.logf("%s pauses for %v", n.ID, d)
	n.Paused = true
	if d > 0 {
		n.w.after(d, n.Resume)
	}
}

// Resume lets the process go on. What was due meanwhile happens in any order.
func (n *Node) Resume() {
	if n.Dead || !n.Paused {
		return
	}
	n.w.logf("%s resumes", n.ID)
	n.awake()
	n.Paused = false
	later := n.later
	n.later = nil
	if n.w.wild && n.w.rng.IntN(2) == 0 {
		n.run()
	}
	for i, do := range later {
		if n.Paused {
			n.later = append(later[i:len(later):len(later)], n.later...)
			return
		}
		do()
	}
	n.run()
	n.planTick()
}

// Crash ends the process without a word.
func (n *Node) Crash() {
	if !n.Dead {
		n.w.logf("%s crashes", n.ID)
		n.end()
	}
}

func (n *Node) end() {
	n.outlive(n.w.all())
	n.Dead = true
	n.tables, n.leases, n.later = nil, nil, nil
}

// Leave sends SIGTERM.
func (n *Node) Leave() {
	if !n.Dead && !n.Leaving {
		n.w.logf("%s gets SIGTERM", n.ID)
		n.Leaving = true
		n.answered(n.driver.Leave)
	}
}

// Open returns the slots whose gate admits keys now.
func (n *Node) Open() slot.Set {
	if n.Dead {
		return slot.Set{}
	}
	return n.gate.OpenSet()
}
