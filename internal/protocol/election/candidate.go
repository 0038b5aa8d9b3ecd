package election

import (
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// Config configures a Candidate.
type Config struct {
	// Holder names the rota in the Lease. It is the same for all members.
	Holder string
	// Lease is how long stock replicas wait after the last renewal. It is written in whole seconds, rounded up. If another
	// member has written a longer one, that is kept.
	Lease time.Duration
	// Deadline is how long after a renewal was sent a member may go on working. It must be shorter than Lease.
	Deadline time.Duration
	// Retry is the mean time between two looks at the Lease, at most half of Deadline.
	Retry time.Duration
	// Fence is how long the rota waits once another holder's Lease has run out: for the last write of that holder.
	Fence time.Duration
	// Seed is for jitter.
	Seed uint64
}

// Record is what the Lease says.
type Record struct {
	// Version is the resourceVersion. "": there is no Lease.
	Version string
	// Holder is who has it. "": nobody.
	Holder string
	// Duration is in whole seconds. 0: the Lease does not say.
	Duration time.Duration
	// Acquired and Renewed are in seconds since 1970, by the clocks of those who wrote them.
	Acquired, Renewed int64
	// Transitions counts changes of the holder.
	Transitions int32
}

// says returns the record without its version: what stock replicas compare.
func (r Record) says() Record {
	r.Version = ""
	return r
}

// Verb says what to do with the Lease.
type Verb uint8

// Verbs.
const (
	// Unknown is no verb.
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

// Request is something to do. Its answer goes to Answer.
type Request struct {
	Verb Verb
	// Record is what to write. With Put its Version is the one to replace.
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
//  1. Until is at most Deadline after a moment before a renewal that this member knows of: of one that it sent itself,
//     or of one that was not there yet when it looked before. That renewal, and all later ones while the Lease is the
//     rota's, say that the Lease lasts for this member's Lease or longer.
//  2. Every write changes what the Lease says, also in seconds. So a stock replica waits from the renewal on.
//  3. Until is 0 from the moment on at which this member learns, by a look or from a watch, that the rota does not have
//     the Lease. No answer to a request that was sent before that moves it again, unless it tells of a later version.
//  4. No renewal from before a look after Join counts: the member that leaves last releases the Lease only if that is
//     as it was before the table lost its last member (see Freeze). Before Join, nothing is written. But for how long
//     another one's Lease has said the same, or has been missing, counts: the wait for that and the one for a new
//     table (R16) run at the same time.
//
// A Candidate is not safe for concurrent use.
type Candidate struct {
	cfg Config
	rng *rand.Rand

	joined, busy, frozen bool
	term                 uint64 // of Join
	next                 time.Duration
	write                *Request
	// lost is a version without the rota as the holder, or that of a deletion, which was heard while a request was under
	// way; "": none.
	lost string

	seen  Record
	known bool
	// counts: seen was answered since Join, so a renewal that it does not have yet is a later one.
	counts bool
	// at is when the last request was sent whose answer is seen, as Time.Late. since is when seen was first answered, as
	// Time.Mono.
	at, since time.Duration
	until     time.Duration
	// other: the Lease was last seen without the rota as its holder. turned is when that ended; 0: it never did.
	other  bool
	turned time.Duration
	// turns counts how often another one had the Lease, or may have had it.
	turns uint64
}

// New returns a candidate that has not joined.
func New(cfg Config) *Candidate {
	return &Candidate{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1))} // jitter
}

// Join says that the table names this member. It may be called again. If the Lease was not the rota's before, what is
// known of it stays, unless it is from before Freeze: nobody has looked since.
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

// Quit says that the table does not name this member, or is gone. The member must stop working at once. It may be
// called again.
func (c *Candidate) Quit() {
	if !c.joined {
		return
	}
	*c = Candidate{
		cfg: c.cfg, rng: c.rng, term: c.term + 1, turns: c.turns, frozen: c.frozen, seen: c.seen, known: c.known && c.frozen,
	}
}

// Until is until when this member may work, as Time.Late; 0: it may not.
func (c *Candidate) Until() time.Duration { return c.until }

// Seen is what the Lease said last; false: nothing is known, or this member has not joined.
func (c *Candidate) Seen() (Record, bool) { return c.seen, c.known && (c.joined || c.frozen) }

// Turned is when this member saw the Lease become the rota's after it had been another's or nobody's, as Time.Mono; 0:
// never. What others wrote before that, this member's caches may not show yet.
func (c *Candidate) Turned() time.Duration { return c.turned }

// Turns counts how often this member learned that another one had the Lease, or must have had it between two looks. It
// never falls.
func (c *Candidate) Turns() uint64 { return c.turns }

// Wake is when Next has something, as Time.Mono; false: not before another call.
func (c *Candidate) Wake() (time.Duration, bool) { return c.next, !c.busy && !c.frozen }

// Next returns what to do now. Until its answer there is nothing else.
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

// Answer takes the answer to a request. start is when it was sent, as Time.Late. A Lease that is missing is an empty
// Record with OutcomeDone. Until may have changed.
func (c *Candidate) Answer(now member.Time, req Request, start time.Duration, o member.Outcome, r Record) {
	if req.term != c.term {
		return
	}
	c.busy = false
	if c.frozen {
		return // it may tell of a renewal by a member that joined after this one was removed
	}
	c.next = now.Mono + c.cfg.Retry*3/4 + c.jitter(c.cfg.Retry/2)
	switch {
	case o == member.OutcomeDone && r.Version != "" && resourceversion.Compare(r.Version, c.lost) <= 0:
		c.next = now.Mono + c.jitter(c.cfg.Retry/4) // it was so before what was heard meanwhile
	case o != member.OutcomeDone && req.Verb != Get && (o == member.OutcomeConflict || o == member.OutcomeMissing):
		c.next = now.Mono + c.jitter(c.cfg.Retry/4) // another one was faster: look
	case o != member.OutcomeDone:
		c.next = now.Mono + c.cfg.Retry/4 + c.jitter(c.cfg.Retry/4)
	case req.Verb == Get:
		c.got(now, start, r)
	default:
		c.look(now, start, r)
		c.until = max(c.until, start+c.cfg.Deadline)
	}
}

// Heard takes what a watch tells of the Lease: that it has this record, with its version, or that there is none since
// this version (an empty Record). It only ever takes the right to work away. What is not newer than what was seen does
// not count, since looks are consistent reads and watches lag. Nor does anything before the first look.
func (c *Candidate) Heard(now member.Time, version string, r Record) {
	switch {
	case !c.joined && c.frozen || !c.known || resourceversion.Compare(version, c.seen.Version) <= 0:
		return
	case r.Holder == c.cfg.Holder:
		c.since = now.Mono // it has not been another's, or missing, all the time
		return
	}
	if c.busy && resourceversion.Compare(version, c.lost) > 0 {
		c.lost = version
	}
	c.write = nil // it would be a conflict
	c.look(now, c.at, r)
}

// got draws conclusions from a look at the Lease.
func (c *Candidate) got(now member.Time, start time.Duration, r Record) {
	renewed := c.counts && r.says() != c.seen.says()
	before := c.at
	c.look(now, start, r)
	c.counts = c.joined
	if r.Version == "" && start-before > 3*c.cfg.Retry {
		c.since = now.Mono // in so long a time somebody may have created it, and another one deleted it
	}
	if !c.joined {
		return
	}
	mine, lease := r.Holder == c.cfg.Holder, (c.cfg.Lease + time.Second - 1).Truncate(time.Second)
	switch {
	case mine && renewed && r.Duration >= lease:
		c.until = max(c.until, before+c.cfg.Deadline) // it was not there when the look before was sent
		return
	case mine, r.Holder == "" && r.Version != "":
	case now.Mono-c.since < c.lasts(r): // also if there is none: somebody may have deleted that of a leader that works
		return
	}
	c.next = now.Mono
	w := Record{
		Version: r.Version, Holder: c.cfg.Holder, Duration: lease,
		Acquired: r.Acquired, Renewed: max(now.Wall, r.Renewed+1), Transitions: r.Transitions,
	}
	if mine {
		w.Duration = max(lease, r.Duration) // members that count on it may work for longer
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

// lasts is how long the rota waits while another one's Lease says the same, or while there is none.
func (c *Candidate) lasts(r Record) time.Duration {
	d := r.Duration
	if d <= 0 {
		d = c.cfg.Lease
	}
	return d + c.cfg.Fence
}

// look notes what the Lease says.
func (c *Candidate) look(now member.Time, start time.Duration, r Record) {
	if !c.known || r.says() != c.seen.says() {
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
		c.turned = max(now.Mono, 1) // another one had it since the last look
		c.turns++
	}
	c.seen, c.known, c.at = r, true, start
}

// Freeze stops looking and renewing, because this member sends the change of the table that removes it and leaves no
// other. If that succeeds, and nobody writes the Lease meanwhile, it can be released: a member that joined afterwards
// knows only of renewals after that, so it has no right to work yet. One that has not joined goes on looking: the
// change makes a table without members.
func (c *Candidate) Freeze() { c.frozen = c.frozen || c.joined }

// Thaw goes on: the change of the table did not happen, or nobody knows.
func (c *Candidate) Thaw() {
	if c.frozen && !c.joined {
		c.known = false // it was kept for Release
	}
	c.frozen = false
}

// Release returns the request that releases the Lease, as stock replicas do; false: it is not the rota's, or not known.
// It has no Answer.
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
