// Package view reads what can be known of a rota from outside, and says it in one form: `rota status`, `rota who`,
// `rota check` and `rota dashboard` all show it. So they never contradict each other.
package view

import (
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Rota is what is known of a rota at one time. It is never changed once it was read. Its JSON is what `-o json` prints:
// fields are added, but neither renamed nor removed.
type Rota struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// At is when it was read, by this machine's clock.
	At time.Time `json:"at"`
	// Epoch is the table's. Slots is the number of hash slots, Key what of an object is hashed.
	Epoch uint64     `json:"epoch"`
	Slots slot.Count `json:"slots"`
	Key   string     `json:"key"`
	// ShardedKinds are the kinds that members report, as "Website.web.example.com". Those sharded by owners come last.
	ShardedKinds []string `json:"kinds"`
	// Pause says that moves are paused, and since when. nil: they are not.
	Pause *Pause `json:"pause,omitempty"`
	// Canary is a build that owns chosen slots only. nil: there is none.
	Canary *Canary `json:"canary,omitempty"`
	// Pins are objects that are to be with members of certain labels, by object.
	Pins []Pin `json:"pins,omitempty"`
	// Shadow says what the members would have; nil: this is no shadow.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Members are those of the table, by ID.
	Members []Member `json:"members"`
	// Runs tile the hash slots.
	Runs []Run `json:"runs"`
	// Balance is what members share, by their reports: slots by their "number", or by their "load" (Options.ByLoad);
	// "mixed" if they differ.
	Balance string `json:"balance"`
	// Hottest are the slots, or neighboring slots, that keep most workers busy, at most 5: those with a twentieth of a
	// worker or more.
	Hottest []Hot `json:"hottest"`
	// HottestObjects are the objects that keep most workers busy, by their members' reports, at most 5: those with a
	// twentieth of a worker or more.
	HottestObjects []HotObject `json:"hottestObjects"`
	// Duties are those of the table, by name.
	Duties []Duty `json:"duties"`
	// Moves are the moves of slots and duties under way, in the order of their slots.
	Moves []Move `json:"moves"`
	// Problems are slots without an owner, or that nobody works on, or that cannot move; members that do not renew; and
	// so on. The worst come first.
	Problems []Problem `json:"problems"`
	// Worst are the objects whose reconciles hang or fail, as the members report them: up to ten of each member. Those
	// that hang come first, and the oldest of each sort.
	Worst []KeyHealth `json:"worst"`
	// Handovers are the last ones that ended, by what the members reported, newest first. Each member keeps some of its
	// own, so that they are gone with it.
	Handovers []Handover `json:"handovers"`
	// History lists past events, newest first. No component keeps all of them: HistoryReach says how far back each kind of
	// event is known.
	History      []Event  `json:"history"`
	HistoryReach []string `json:"historyReach"`
	// Expels are what the table remembers of the last expels, oldest first: at most 64, those older than 10 minutes only
	// until the next one.
	Expels []Expel `json:"expels"`
	// Differences are settings in which members differ, as text, unless they cannot work together because of it.
	Differences []string `json:"differences"`
	// Warnings are the warnings among the members' events of the last hour, oldest first.
	Warnings []Warning `json:"warnings"`
	// Notices are the other events of the last hour about the rota, oldest first.
	Notices []Warning `json:"-"`
	// Fence says whether a fence stands, as text.
	Fence string `json:"fence"`
	// Unknown is what could not be read, and why. What depends on it is left out above.
	Unknown []Unknown `json:"unknown"`

	// Table is the table itself. Reports are those of its members, by ID. FenceState is what Fence says.
	Table      *table.Table                `json:"-"`
	Reports    map[string]*coverage.Report `json:"-"`
	FenceState fence.State                 `json:"-"`
	// Stale has the ages of reports that are too old to say anything, by member. They are not among Reports.
	Stale map[string]time.Duration `json:"-"`
}

// Pause is a pause of moves.
type Pause struct {
	// Since is when it began, By who asked for it, and Reason why, as they gave it.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Member is a member of the table.
type Member struct {
	ID    string `json:"id"`
	Pod   string `json:"pod"`
	Build string `json:"build,omitempty"`
	// Joined is when it joined, by its own clock.
	Joined time.Time `json:"joined"`
	Weight int       `json:"weight"`
	// Owned, Open, Coming and Going are numbers of hash slots: owned by the table, admitting keys by the member's report
	// (nil: it has none), on their way to it, and away from it.
	Owned  int  `json:"owned"`
	Open   *int `json:"open,omitempty"`
	Coming int  `json:"coming"`
	Going  int  `json:"going"`
	// Duties is the number of duties that it has, without the rota's own.
	Duties int `json:"duties"`
	// Objects is the number of sharded objects that it holds by its report, OldestWaiting how long the oldest key has been
	// waiting for a worker, in seconds, if more than 1 s. nil: it has no report.
	Objects       *int     `json:"objects,omitempty"`
	OldestWaiting *float64 `json:"oldestWaitingSeconds,omitempty"`
	// Load is how many workers the reconciles of its sharded objects keep busy, on average over some minutes. nil: its
	// report does not say.
	Load *float64 `json:"load,omitempty"`
	// Renewed is when it renewed its Lease, by its own clock. Lease is how long the Lease lasts, in seconds. Left is how
	// long others wait yet, in seconds, by the API server's clock and up to 2 s too much: negative once the Lease is over,
	// nil without a Lease or if it is not known.
	Renewed *time.Time `json:"renewed,omitempty"`
	Lease   float64    `json:"leaseSeconds,omitempty"`
	Left    *float64   `json:"leftSeconds,omitempty"`
	// ClockAhead is how far its clock was ahead of the API server's when it renewed, in seconds, give or take a second and
	// the time that the request took. Negative: behind. nil: not known.
	ClockAhead *float64 `json:"clockAheadSeconds,omitempty"`
	// Gate is "open", "shut", or empty without a Lease.
	Gate string `json:"gate,omitempty"`
	// Memory is what its Lease reports of its memory. nil: no limit is known.
	Memory *Memory `json:"memory,omitempty"`
	// Drain says that it was told to give up its slots and duties, and to take none. nil: it was not.
	Drain *Drain `json:"drain,omitempty"`
	// State is one of the States.
	State State `json:"state"`
}

// Memory is a member's memory, in bytes. Base is what it used when it last had no slot.
type Memory struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	Base  int64 `json:"base"`
}

// Hot is a slot that keeps workers busy, or neighboring ones that do so together.
type Hot struct {
	First  int    `json:"first"`
	Last   int    `json:"last"`
	Member string `json:"member"`
	// Workers is how many are busy with their objects, on average over some minutes.
	Workers float64 `json:"workers"`
}

// HotObject is an object that keeps workers busy.
type HotObject struct {
	// Kind is as "Website.web.example.com". Namespace is empty if the kind is cluster-scoped.
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Controller string `json:"controller"`
	Slot       int    `json:"slot"`
	Member     string `json:"member"`
	// Workers is at least how many, on average over some minutes.
	Workers float64 `json:"workers"`
}

// Object is as "Website.web.example.com team-a/hello-7".
func (h *HotObject) Object() string {
	return h.Kind + " " + strings.TrimPrefix(h.Namespace+"/"+h.Name, "/")
}

// Drain is why a member is drained.
type Drain struct {
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// State is what a member does.
type State string

// States of members, from good to bad.
const (
	// Working: it owns slots, and all of them are active.
	Working State = "Working"
	// Activating: it waits with some of its slots for the work of their former owners to show.
	Activating State = "Activating"
	// Waiting: it owns no slots yet, or the rota does not hold leader election's Lease.
	Waiting State = "Waiting"
	// Shadowing: it belongs to a shadow, and works on nothing.
	Shadowing State = "Shadow"
	// Drained: it was told to give up its slots, has none, and stays without until told otherwise (`rota drain`, `rota
	// undrain`).
	Drained State = "Drained"
	// Draining: it was told to give up its slots, and has some yet.
	Draining State = "Draining"
	// Leaving: its process ends, and it hands its slots over.
	Leaving State = "Leaving"
	// Stopped: it has shut its gate, since it could not renew its Lease in time; or it has not renewed it for longer than
	// RenewDeadline, by which it has stopped, or is gone.
	Stopped State = "Stopped"
	// Silent: it has not renewed its Lease for as long as that lasts. Others take its slots.
	Silent State = "Silent"
)

// Run is a run of neighboring hash slots that share an owner and a state.
type Run struct {
	First int `json:"first"`
	Last  int `json:"last"`
	// Owner is a member's ID; empty: nobody.
	Owner string `json:"owner,omitempty"`
	// Next is the member that they move to; empty: they stay. Ready: it holds their objects already.
	Next  string `json:"next,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	// Activating: the owner does not work on them yet.
	Activating bool `json:"activating,omitempty"`
	// Since is the epoch at which the owner got them, Cause how: "assigned", "handed" or "expelled"; empty where the table
	// no longer tells.
	Since uint64 `json:"sinceEpoch"`
	Cause string `json:"cause,omitempty"`
	// Closed: the owner's report says that it admits no keys of some of them. Slots move, and reports come every few
	// seconds, so that this is no problem by itself.
	Closed bool `json:"closed,omitempty"`
}

// Duty is a duty of the table.
type Duty struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
	Next  string `json:"next,omitempty"`
	// State is "Working", "Activating", "Moving" or "Nobody".
	State string `json:"state"`
}

// Move is a move under way.
type Move struct {
	// First and Last are its slots; Duty is the name, if it is a duty that moves.
	First int    `json:"first"`
	Last  int    `json:"last"`
	Duty  string `json:"duty,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	// Phase is "warm" (To lists), "drain" (From lets work end, or waits for its turn), or "activate" (To owns the slots
	// and waits until it sees From's last writes).
	Phase string `json:"phase"`
	// Seconds is for how long it has been in this phase at least, as To reports or as the Reader has seen it; nil: neither
	// is known.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Severity is how bad a problem is.
type Severity string

// Severities.
const (
	// Error: objects are not worked on, or nobody can tell whether they are.
	Error Severity = "error"
	// Warning: something will go wrong, or is slow.
	Warn Severity = "warning"
)

// Problem is something that should not be so.
type Problem struct {
	Severity Severity `json:"severity"`
	// What is a word for the kind of problem, such as "SlotUnowned"; docs/troubleshooting.md has a section
	// of that name.
	What string `json:"what"`
	// Slots are the slots concerned, as text, such as "0-15 17"; Member is the member. Either may be empty.
	Slots  string `json:"slots,omitempty"`
	Member string `json:"member,omitempty"`
	// Object is the object that it is about, such as "Website default/blog", if it is about one.
	Object string `json:"object,omitempty"`
	// Message says what is wrong, and what to do.
	Message string `json:"message"`
}

// Handover is a move that has ended, as its new owner reported it.
type Handover struct {
	// Slots are the slots, as text, and Count is their number. Duty is the name, if it was a duty.
	Slots string `json:"slots,omitempty"`
	Count int    `json:"count"`
	Duty  string `json:"duty,omitempty"`
	// From is the former owner (empty: nobody), To the one that reported.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Cause is "assigned", "handed" or "expelled".
	Cause string `json:"cause"`
	// Epoch is the table's epoch at which To got the slots. Ended is when To began to work on them, by To's clock.
	Epoch uint64    `json:"epoch"`
	Ended time.Time `json:"ended"`
	// Warm is how long To listed, Drain how long it then waited for From to give them up, and Activate how long it took
	// from then until To worked on them, all in seconds and by To's clock. A phase that did not happen is 0.
	Warm     float64 `json:"warmSeconds"`
	Drain    float64 `json:"drainSeconds"`
	Activate float64 `json:"activateSeconds"`
}

// Expel is a member's expel, of which the table knows the Pod only.
type Expel struct {
	Pod string `json:"pod"`
	// At is when, by the clock of the member that expelled it, in whole seconds.
	At time.Time `json:"at"`
}

// Warning is an event of type Warning.
type Warning struct {
	At time.Time `json:"at"`
	// Member is the Pod, or the ID, of who sent it. ID is the member of the table that did; empty: none that is there now.
	Member  string `json:"member,omitempty"`
	ID      string `json:"id,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// About is the member that it is about, if that is another one than who sent it.
	About string `json:"about,omitempty"`
	// Over says why what it warns of is over; empty: it may still be so.
	Over string `json:"over,omitempty"`
}

// Unread returns why what could not be read, if that is so. what is an Unknown's.
func (r *Rota) Unread(what string) (reason string, unread bool) {
	i := slices.IndexFunc(r.Unknown, func(u Unknown) bool { return u.What == what })
	if i < 0 {
		return "", false
	}
	return r.Unknown[i].Error, true
}

// Unknown is something that could not be read.
type Unknown struct {
	What  string `json:"what"`
	Error string `json:"error"`
	// Err is the error itself, if there was one.
	Err error `json:"-"`
}
