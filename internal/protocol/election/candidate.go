package election

import (
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// Config configures a Candidate.
type Config struct {
	// Holder is the rota's name in the Lease. It is the same for all members.
	Holder string
	// Lease is how long stock replicas wait after the last renewal. It is written in whole seconds, rounded up. A longer
	// duration that another member has written is kept.
	Lease time.Duration
	// Deadline is how long a member may go on working after a renewal was sent. It must be shorter than Lease.
	Deadline time.Duration
	// Retry is the mean time between two reads of the Lease, at most half of Deadline.
	Retry time.Duration
	// Fence is how long the rota waits for the last write of another holder once its Lease has expired.
	Fence time.Duration
	// Seed seeds the jitter.
	Seed uint64
}

// Record is the content of the Lease.
type Record struct {
	// Version is the resourceVersion. It is empty if there is no Lease.
	Version string
	// Holder is the holder's identity, or empty.
	Holder string
	// Duration is in whole seconds. It is 0 if the Lease has none.
	Duration time.Duration
	// Acquired and Renewed are in Unix seconds, by the clocks of their writers.
	Acquired, Renewed int64
	// Transitions counts changes of the holder.
	Transitions int32
}

// content returns the record without its version, which is what stock replicas compare.
func (r Record) content() Record {
	r.Version = ""
	return r
}

// Verb is the kind of a Request.
type Verb uint8

// Verbs.
const (
	Unknown Verb = iota
	// Get reads the Lease without resourceVersion.
	Get
	// Create creates it.
	Create
	// Put replaces it if it still has the record's version.
	Put
)

// String returns the verb in lower case.
func (v Verb) String() string { return [...]string{"unknown", "get", "create", "put"}[v] }

// Request is a request to carry out. Its result goes to Answer.
type Request struct {
	Verb Verb
	// Record is what to write. With Put, its Version is the one to replace.
	Record Record
	term   uint64
}

// Candidate is one member's part in the rota's candidacy.
//
//	            Join       the Lease is another's, or missing       released, or run out
//	watching ─────────▶ looking ──────────────────────────▶ waiting ─────────────────────▶ taking
//	    ▲                  │ the Lease is the rota's                                         │
//	    │ Quit             ▼          nobody has renewed it since the last look              ▼
//	    └────────────── holding ◀──────────────────────────────────────────────────────── written
//
// Invariants:
//  1. Until is at most Deadline after a moment before a known renewal: one that this member sent, or one that was not
//     there when this member read the Lease before. That renewal, and all later ones while the rota holds the Lease,
//     give the Lease this member's Lease duration or a longer one.
//  2. Every write changes the Lease's content, also in whole seconds. So stock replicas wait from the renewal on.
//  3. Until is 0 from the moment at which this member learns, by a read or from a watch, that the rota does not hold
//     the Lease. Answers to earlier requests do not move it again, unless they show a later version.
//  4. Renewals from before the first read after Join do not count: the member that leaves last releases the Lease only
//     if it is as it was before the table lost its last member (see Freeze). Before Join, nothing is written. But the
//     time for which another holder's Lease has been unchanged or missing counts from before Join: that wait and the
//     wait for a new table (R16) run at the same time.
//
// A Candidate is not safe for concurrent use.
type Candidate struct {
	cfg Config
	rng *rand.Rand

	joined, busy, frozen bool
	term                 uint64 // of Join
	next                 time.Duration
	write                *Request
	// lost is a version at which the rota was not the holder, or the Lease was deleted, that was heard while a request was
	// in flight, or "".
	lost string

	seen  Record
	known bool
	// counts: seen was read after Join, so renewals that it does not contain are later ones.
	counts bool
	// at is when the request that returned seen was sent, as Time.Late. since is when seen was first returned, as
	// Time.Mono.
	at, since time.Duration
	until     time.Duration
	// other: the rota did not hold the Lease when it was last read. turned is when that ended, or 0.
	other  bool
	turned time.Duration
	// turns counts how often another candidate held the Lease, or may have.
	turns uint64
}

// New returns a candidate that has not joined.
func New(cfg Config) *Candidate {
	return &Candidate{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1))} // jitter
}

// Join reports that the table names this member. It may be called again. If the rota did not hold the Lease before, the
// Lease's known state is kept, unless it is from before Freeze, after which nothing was read.
func (c *Candidate) Join(now member.Time) {
	if c.joined {
		return
	}
	before := *c
	*c = Candidate{cfg: c.cfg, rng: c.rng, joined: true, term: c.term + 1, turns: c.turns, next: now.Mono}
	if before.known && !before.frozen && before.seen.Holder != c.cfg.Holder {
		c.seen, c.known, c.at, c.since, c.other = before.seen, true, before.at, before.since, before.other
	}
}

// Quit reports that the table does not name this member, or is gone. The member must stop working at once. Quit may be
// called again.
func (c *Candidate) Quit() {
	if !c.joined {
		return
	}
	*c = Candidate{
		cfg: c.cfg, rng: c.rng, term: c.term + 1, turns: c.turns, frozen: c.frozen, seen: c.seen, known: c.known && c.frozen,
	}
}

// Until is how long this member may work, as Time.Late, or 0 if it may not.
func (c *Candidate) Until() time.Duration { return c.until }

// Seen returns the last known content of the Lease. It returns false if nothing is known, or if this member has not
// joined.
func (c *Candidate) Seen() (Record, bool) { return c.seen, c.known && (c.joined || c.frozen) }

// Turned returns when this member last saw the rota acquire the Lease, as Time.Mono, or 0. Its caches may lack writes
// that other holders made before that.
func (c *Candidate) Turned() time.Duration { return c.turned }

// Turns counts how often this member learned that another candidate held the Lease, or must have held it between two
// reads. It never decreases.
func (c *Candidate) Turns() uint64 { return c.turns }

// Wake returns when Next has a request, as Time.Mono, or false if it depends on another call.
func (c *Candidate) Wake() (time.Duration, bool) { return c.next, !c.busy && !c.frozen }

// Next returns the request to send now. There is no further request until it is answered.
func (c *Candidate) Next(now member.Time) (Request, bool) {
	if c.busy || c.frozen || now.Mono < c.next {
		return Request{}, false
	}
	c.busy, c.lost = true, ""
	if c.write != nil {
		req := *c.write
		c.write = nil
		return req, true
	}
	return Request{Verb: Get, term: c.term}, true
}

// Answer handles the result of a request. start is when it was sent, as Time.Late. A missing Lease is an empty Record
// with OutcomeDone. It may change Until.
func (c *Candidate) Answer(now member.Time, req Request, start time.Duration, o member.Outcome, r Record) {
	if req.term != c.term {
		return
	}
	c.busy = false
	if c.frozen {
		return // it may show a renewal by a member that joined after this one was removed
	}
	c.next = now.Mono + c.cfg.Retry*3/4 + c.jitter(c.cfg.Retry/2)
	switch {
	case o == member.OutcomeDone && r.Version != "" && resourceversion.Compare(r.Version, c.lost) <= 0:
		c.next = now.Mono + c.jitter(c.cfg.Retry/4) // the answer is older than what was heard
	case o != member.OutcomeDone && req.Verb != Get && (o == member.OutcomeConflict || o == member.OutcomeMissing):
		c.next = now.Mono + c.jitter(c.cfg.Retry/4) // another writer was faster: read
	case o != member.OutcomeDone:
		c.next = now.Mono + c.cfg.Retry/4 + c.jitter(c.cfg.Retry/4)
	case req.Verb == Get:
		c.got(now, start, r)
	default:
		c.observe(now, start, r)
		c.until = max(c.until, start+c.cfg.Deadline)
	}
}

// Heard handles what a watch reports about the Lease: its record, with its version, or that it has been missing since
// this version (an empty Record). It can only end the permission to work. Versions that are not newer than seen are
// ignored, since reads are consistent and watches lag. So is everything before the first read.
func (c *Candidate) Heard(now member.Time, version string, r Record) {
	switch {
	case !c.joined && c.frozen || !c.known || resourceversion.Compare(version, c.seen.Version) <= 0:
		return
	case r.Holder == c.cfg.Holder:
		c.since = now.Mono // it was the rota's in between
		return
	}
	if c.busy && resourceversion.Compare(version, c.lost) > 0 {
		c.lost = version
	}
	c.write = nil // it would conflict
	c.observe(now, c.at, r)
}

// got handles a read of the Lease.
func (c *Candidate) got(now member.Time, start time.Duration, r Record) {
	renewed := c.counts && r.content() != c.seen.content()
	before := c.at
	c.observe(now, start, r)
	c.counts = c.joined
	if r.Version == "" && start-before > 3*c.cfg.Retry {
		c.since = now.Mono // the Lease may have been created and deleted meanwhile
	}
	if !c.joined {
		return
	}
	mine, lease := r.Holder == c.cfg.Holder, (c.cfg.Lease + time.Second - 1).Truncate(time.Second)
	switch {
	case mine && renewed && r.Duration >= lease:
		c.until = max(c.until, before+c.cfg.Deadline) // the renewal was made after the read before was sent
		return
	case mine, r.Holder == "" && r.Version != "":
	case now.Mono-c.since < c.lasts(r): // even if it is missing: it may have been deleted while its holder works
		return
	}
	c.next = now.Mono
	w := Record{
		Version: r.Version, Holder: c.cfg.Holder, Duration: lease,
		Acquired: r.Acquired, Renewed: max(now.Wall, r.Renewed+1), Transitions: r.Transitions,
	}
	if mine {
		w.Duration = max(lease, r.Duration) // members that rely on it may work for longer
	} else {
		w.Acquired = w.Renewed
		if r.Version != "" {
			w.Transitions++
		}
	}
	c.write = &Request{Verb: Put, Record: w, term: c.term}
	if r.Version == "" {
		c.write.Verb = Create
	}
}

// lasts is how long the rota waits while another holder's Lease stays unchanged, or while there is none.
func (c *Candidate) lasts(r Record) time.Duration {
	d := r.Duration
	if d <= 0 {
		d = c.cfg.Lease
	}
	return d + c.cfg.Fence
}

// observe records the content of the Lease.
func (c *Candidate) observe(now member.Time, start time.Duration, r Record) {
	if !c.known || r.content() != c.seen.content() {
		c.since = now.Mono
	}
	switch {
	case r.Holder != c.cfg.Holder:
		if !c.other {
			c.turns++
		}
		c.until, c.other = 0, true
	case c.other:
		c.other, c.turned = false, max(now.Mono, 1)
	case c.known && (r.Transitions != c.seen.Transitions || r.Acquired != c.seen.Acquired):
		c.turned = max(now.Mono, 1) // another candidate had it since the last read
		c.turns++
	}
	c.seen, c.known, c.at = r, true, start
}

// Freeze stops reading and renewing, because this member sends the change of the table that removes the last member,
// itself. If that succeeds, and the Lease is not written meanwhile, it can be released: a member that joined afterwards
// counts only later renewals, so it may not work yet. A candidate that has not joined goes on reading, since the change
// makes a table without members.
func (c *Candidate) Freeze() { c.frozen = c.frozen || c.joined }

// Thaw resumes: the change of the table did not happen, or its outcome is unknown.
func (c *Candidate) Thaw() {
	if c.frozen && !c.joined {
		c.known = false // it was kept for Release
	}
	c.frozen = false
}

// Release returns the request that releases the Lease, as stock replicas do. It returns false if the rota does not hold
// the Lease, or that is unknown. The request has no Answer.
func (c *Candidate) Release(now member.Time) (Request, bool) {
	if !c.frozen || !c.known || c.seen.Holder != c.cfg.Holder {
		return Request{}, false
	}
	r := c.seen
	r.Holder, r.Duration, r.Renewed = "", time.Second, max(now.Wall, r.Renewed+1)
	r.Acquired = r.Renewed
	return Request{Verb: Put, Record: r}, true
}

func (c *Candidate) jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(c.rng.Int64N(int64(d)))
}
