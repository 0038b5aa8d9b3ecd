package writes

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// unknownMargin is added to the timeout of a write whose outcome is unknown, for time on the network and for clocks
// that run at different rates.
const unknownMargin = time.Second

// Limits bounds the time that a write may take, from its beginning.
type Limits struct {
	SendWithin time.Duration // until it has been sent
	Timeout    time.Duration // for the server
	Patience   time.Duration // until its answer has come
	Long       bool          // may take longer than WriteTimeout, as announced in the Lease
}

// LimitsOf returns the limits of a write that begins now (rule R2). left is the time until the member's deadline.
func LimitsOf(c *member.Config, left time.Duration, long bool) Limits {
	if long {
		l := Limits{SendWithin: min(left, c.SendWithin()), Timeout: c.LongTimeout(left), Long: true}
		l.Patience = l.SendWithin + l.Timeout + unknownMargin
		return l
	}
	timeout := min(left, c.WriteTimeout)
	return Limits{SendWithin: timeout, Timeout: timeout, Patience: min(left, c.RenewDeadline)}
}

// Attempt decides how long a write is in flight. The API server completes or rejects a write within a timeout, but the
// answer may take longer, for instance if CPU time is short. If the client gives up early, the outcome is unknown, and
// it may repeat a write that must not be repeated, such as making a Pod. So there are two limits:
//
//   - Until the write has been sent, it ends when SendWithin has passed since its beginning. So no write that waits for
//     a connection is sent later than that, retries of net/http included.
//   - Once it has been sent, it waits for its answer as long as the member's deadline allows. The write does not take
//     effect any later because of that, since the API server has given up by then.
//
// An Attempt has no clock. All times are counted from the write's beginning. It is not safe for concurrent use.
type Attempt struct {
	Limits
	// sent is true if the latest try has been sent. sending is true while a try has a connection and has not been sent.
	// lastSent is when the last part of a try may have been sent.
	sent, sending bool
	lastSent      time.Duration
	// asked is true once a transport has asked for a connection, so its trace hooks work. connected is true once one has
	// got a connection for a try: part of the write may have reached the server, and another try may have begun since.
	asked, connected bool
}

// Begin records that the request is about to be sent, perhaps again. It reports whether it is too late for that.
func (a *Attempt) Begin(at time.Duration) (late bool) {
	a.noteSent(at)
	a.sent, a.asked = false, true
	return at >= a.SendWithin
}

// Connect records that there is a connection.
func (a *Attempt) Connect() { a.sending, a.connected = true, true }

// Wrote records that the request has been sent, or could not be sent as a whole.
func (a *Attempt) Wrote(at time.Duration, whole bool) {
	a.noteSent(at)
	a.sent, a.connected = whole, true
}

// noteSent records that a try that was being sent is not any more.
func (a *Attempt) noteSent(at time.Duration) {
	if a.sending {
		a.sending, a.lastSent = false, at
	}
}

// NeverSent reports whether no part of the write can have reached the server. known is false if the transport hides its
// trace hooks.
func (a *Attempt) NeverSent() (never, known bool) { return !a.connected, a.asked || a.connected }

// Settled returns the time after which the write can no longer take effect if its outcome is unknown at a time. A
// process that stood still may have sent it after SendWithin.
func (a *Attempt) Settled(at time.Duration) time.Duration {
	latest := max(min(at, a.SendWithin), a.lastSent)
	if a.sending {
		latest = at
	}
	return latest + a.Timeout + unknownMargin
}

// Outcome is what a client knows about a write when it returns.
type Outcome uint8

// The outcomes. The zero value is Unknown: the transport may have sent it, or sent it again, a moment ago.
const (
	Unknown Outcome = iota
	NeverSent
	Answered
)

// Effects are what follows from an outcome.
type Effects struct {
	// Answered records what the write did, Lost that this is unknown (rule R8).
	Answered, Lost func()
	// Release ends the write's time in flight (rule R6).
	Release func()
	// After calls a function after some time.
	After func(wait time.Duration, do func())
}

// End carries out what follows from an outcome. If that is Unknown, the write may take effect for as long as settles.
func End(outcome Outcome, settles time.Duration, e Effects) {
	switch outcome {
	case NeverSent:
		e.Release()
	case Answered:
		e.Answered() // before the release, so that the slot cannot move yet
		e.Release()
	case Unknown:
		e.Lost()
		e.After(settles, e.Release)
	}
}
