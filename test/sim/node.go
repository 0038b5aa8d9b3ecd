package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/controllers"
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

	clock nodeClock
	// Link is its connection to the API servers, and Work its workers and their keys.
	Link     link
	Work     workers
	share    share
	keeper   controllers.Keeper
	runner   runner
	Duties   duties
	informer informer
	checks   checks

	cfg     member.Config
	member  *member.Member
	gate    *gate.Gate
	driver  *replica.Driver
	state   *replica.State
	later   []func() // what the process does when it goes on after a pause
	running bool
	lapsed  bool                     // the last event was Lapsed
	halt    func(member.Action) bool // see HaltBefore
	// In paced worlds the node is busy until the time for which it has paid is over. Until crowded that takes long.
	busy, paid bool
	crowded    time.Duration
	wake       uint64
	deadline   time.Duration // of the gate, by its own clock
	planner    bool
	reported   reporting

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
	n := &Node{w: w, Replica: r, ID: fmt.Sprintf("%s-%d", r.Pod, r.incarnations), state: state}
	n.clock = nodeClock{w: w, rate: 1}
	n.Link = link{
		w: w, n: n, held: map[string][]func(){}, astray: map[string][]func(){}, lose: map[string]int{},
		bad: map[string]spell{}, slow: quick,
	}
	n.Work, n.keeper = workers{w: w, n: n}, controllers.NoKeeper{}
	n.share, n.runner = share{n: n}, runner{n: n}
	n.Duties = duties{w: w, n: n}
	n.checks = checks{
		w: w, n: n, outlives: map[slot.Slot]time.Duration{}, loading: map[slot.Slot]uint64{}, present: map[slot.Slot]uint64{},
	}
	if w.wild {
		n.clock.rate = w.clocks.rate(w.rng)
		n.Link.server = w.rng.IntN(len(w.servers))
		n.clock.zero = w.between(0, time.Hour)
		n.clock.skew = int64(w.rng.IntN(3)) - 1
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
	n.gate = gate.New(w.opts.everything(), n.clock.late)
	n.Work.employ()
	n.Duties.takeDuties()
	if w.opts.Keep != nil {
		n.keeper = w.opts.Keep(n, former != nil)
	}
	n.drive()
	w.Nodes = append(w.Nodes, n)
	w.logf("%s starts, clock rate %.2f", n.ID, n.clock.rate)
	n.Link.followTable()
	if w.wild {
		n.informer.start(n)
		n.Work.startWork()
	}
	n.post(member.Tick{})
	return n
}

// drive makes the node's driver.
func (n *Node) drive() {
	n.state.Begin(n.ID, n.clock.late())
	n.driver = replica.NewDriver(replica.DriverEnv{
		Config: n.cfg, Member: n.member, Clock: ownClock{n}, State: n.state, Parts: n.parts(),
		Turns: turns{replica.Always{Set: n.setDeadline}, n}, Send: requests{n}, Watch: observer{n}, Expire: n.expires,
		Long: &n.Work.long, Versions: n.Work.leaves, Settle: n.Work.settle,
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
	n.checks.heard(e)
	if _, tick := e.(member.Tick); !tick {
		n.w.logf("%s ← %v", n.ID, e)
	}
	_, n.lapsed = e.(member.Lapsed)
}

func (observer) Action(member.Action) {}

func (observer) Seen(member.Snapshot) {}

// ownClock is the node's clock, for its driver.
type ownClock struct{ n *Node }

func (c ownClock) Now() member.Time { return c.n.clock.time() }

func (c ownClock) Mono() time.Duration { return c.n.clock.mono() }

func (c ownClock) Late() time.Duration { return c.n.clock.late() }

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

// World is where the node is.
func (n *Node) World() *World { return n.w }

// Do calls do in the process after a delay, unless the process has ended by then. do may call what the process's member
// waits for.
func (n *Node) Do(wait time.Duration, do func()) {
	n.w.after(wait, func() { n.local(func() { n.answered(do) }) })
}

// Late is the clock by which the node's deadlines are measured.
func (n *Node) Late() time.Duration { return n.clock.late() }

// Left returns how much real time is left until a deadline.
func (n *Node) Left(deadline time.Duration) time.Duration { return n.clock.takes(deadline - n.Late()) }

// Await waits, for a holder's call that blocks.
func (n *Node) Await(ctx context.Context, d time.Duration) bool { return n.runner.Sleep(ctx, d) }

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
	n.Work.tasksEnd()
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
	n.Work.cancelled()
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
	n.keeper.SetDeadline(at)
	n.deadline = at
	n.Work.cancelled()
	n.w.at(n.clock.real(at), func() { n.local(n.expire) })
}

func (n *Node) planTick() {
	n.wake++
	if n.Stopped != nil {
		return
	}
	if wake, mine := n.member.Wake(), n.wake; wake < math.MaxInt64 {
		n.w.at(n.clock.real(wake+n.clock.sleeps()), func() {
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
	n.checks.outlive(n.w.all())
	n.Dead = true
	n.runner.end()
	n.Link.tables, n.Link.leases, n.later = nil, nil, nil
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
