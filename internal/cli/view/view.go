// Package view reads the state of a rota from outside. `rota status`, `rota who`, `rota check` and `rota dashboard` all
// use it, so they never contradict each other.
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

// Rota is the state of a rota at one time. It is immutable. Its JSON is the output of `-o json`: fields are added, but
// never renamed or removed.
type Rota struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// At is when it was read, by this machine's clock.
	At time.Time `json:"at"`
	// Epoch is the table's. Slots is the number of hash slots. Key is the part of an object that is hashed.
	Epoch uint64     `json:"epoch"`
	Slots slot.Count `json:"slots"`
	Key   string     `json:"key"`
	// ShardedKinds are the kinds in the members' reports, such as "Website.web.example.com". Kinds sharded by owners come
	// last.
	ShardedKinds []string `json:"kinds"`
	// Pause is set while moves are paused.
	Pause *Pause `json:"pause,omitempty"`
	// Canary is a build that only owns certain slots, or nil.
	Canary *Canary `json:"canary,omitempty"`
	// Pins keep objects on members with certain labels. They are sorted by object.
	Pins []Pin `json:"pins,omitempty"`
	// Shadow is what the members would own, or nil if the rota is not a shadow.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Members are sorted by ID.
	Members []Member `json:"members"`
	// Runs cover all hash slots in order.
	Runs []Run `json:"runs"`
	// Balance is how slots are shared according to the members' reports: by "number", by "load" (Options.ByLoad), or
	// "mixed" if members differ.
	Balance string `json:"balance"`
	// Hottest are up to 5 slots, or groups of neighboring slots, that keep the most workers busy, at least a twentieth of
	// a worker each.
	Hottest []Hot `json:"hottest"`
	// HottestObjects are up to 5 objects that keep the most workers busy according to the members' reports, at least a
	// twentieth of a worker each.
	HottestObjects []HotObject `json:"hottestObjects"`
	// Duties are sorted by name.
	Duties []Duty `json:"duties"`
	// Moves are the current moves of slots and duties, in the order of their slots.
	Moves []Move `json:"moves"`
	// Problems are, for example, slots without an owner or an active member, slots that cannot move, and members that do
	// not renew. The worst come first.
	Problems []Problem `json:"problems"`
	// Worst are the objects whose reconciles hang or fail according to the members' reports: up to ten per member. Hanging
	// ones come first, and the oldest of each sort.
	Worst []KeyHealth `json:"worst"`
	// Handovers are recent handovers from the members' reports, newest first. Each member keeps its own, so they are lost
	// when it ends.
	Handovers []Handover `json:"handovers"`
	// History lists past events, newest first. No component keeps all of them: HistoryReach describes how far back each
	// kind of event goes.
	History      []Event  `json:"history"`
	HistoryReach []string `json:"historyReach"`
	// Expels are the last expels in the table, oldest first: at most 64. Expels older than 10 minutes are removed at the
	// next one.
	Expels []Expel `json:"expels"`
	// Differences describes settings that differ between members but do not prevent them from working together.
	Differences []string `json:"differences"`
	// Warnings are the members' warning events of the last hour, oldest first.
	Warnings []Warning `json:"warnings"`
	// Notices are the other events of the last hour about the rota, oldest first.
	Notices []Warning `json:"-"`
	// Fence describes the state of the fence.
	Fence string `json:"fence"`
	// Unknown lists what could not be read, and why. Fields above that depend on it are empty.
	Unknown []Unknown `json:"unknown"`

	// Table is the table. Reports maps its members' IDs to their reports. FenceState is the state in Fence.
	Table      *table.Table                `json:"-"`
	Reports    map[string]*coverage.Report `json:"-"`
	FenceState fence.State                 `json:"-"`
	// Stale maps members to the ages of their outdated reports, which Reports does not contain.
	Stale map[string]time.Duration `json:"-"`
}

// Pause is a pause of moves.
type Pause struct {
	// Since is when it began, By who requested it, and Reason the given reason.
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
	// Owned, Open, Coming and Going count hash slots: owned in the table, open in the member's report (nil if it has
	// none), moving to the member, and moving away.
	Owned  int  `json:"owned"`
	Open   *int `json:"open,omitempty"`
	Coming int  `json:"coming"`
	Going  int  `json:"going"`
	// Duties is the number of its duties, without the rota's internal ones.
	Duties int `json:"duties"`
	// Objects is the number of sharded objects that it holds. OldestWaiting is how long the oldest key has been waiting
	// for a worker, in seconds, if more than 1 s. Both are from its report, and nil without one.
	Objects       *int     `json:"objects,omitempty"`
	OldestWaiting *float64 `json:"oldestWaitingSeconds,omitempty"`
	// Load is how many workers the reconciles of its sharded objects keep busy, averaged over some minutes, or nil if its
	// report does not include it.
	Load *float64 `json:"load,omitempty"`
	// Renewed is when it renewed its Lease, by its own clock. Lease is the Lease's duration in seconds. Left is the time
	// until the Lease expires, in seconds, by the API server's clock and up to 2 s too high. It is negative after expiry,
	// and nil without a Lease or if unknown.
	Renewed *time.Time `json:"renewed,omitempty"`
	Lease   float64    `json:"leaseSeconds,omitempty"`
	Left    *float64   `json:"leftSeconds,omitempty"`
	// ClockAhead is how far its clock was ahead of the API server's when it renewed, in seconds, with an error of a second
	// plus the request's duration. It is negative if behind, and nil if unknown.
	ClockAhead *float64 `json:"clockAheadSeconds,omitempty"`
	// Gate is "open", "shut", or empty without a Lease.
	Gate string `json:"gate,omitempty"`
	// Memory is from its Lease, or nil without a known limit.
	Memory *Memory `json:"memory,omitempty"`
	// Drain is set if it was drained.
	Drain *Drain `json:"drain,omitempty"`
	State State  `json:"state"`
}

// Memory is a member's memory in bytes. Base is its use when it last had no slot.
type Memory struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	Base  int64 `json:"base"`
}

// Hot is a slot, or a group of neighboring slots, that keeps workers busy.
type Hot struct {
	First  int    `json:"first"`
	Last   int    `json:"last"`
	Member string `json:"member"`
	// Workers is how many workers its objects keep busy, averaged over some minutes.
	Workers float64 `json:"workers"`
}

// HotObject is an object that keeps workers busy.
type HotObject struct {
	// Kind is in the form "Website.web.example.com". Namespace is empty if the kind is cluster-scoped.
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Controller string `json:"controller"`
	Slot       int    `json:"slot"`
	Member     string `json:"member"`
	// Workers is a lower bound, averaged over some minutes.
	Workers float64 `json:"workers"`
}

// Object returns "Website.web.example.com team-a/hello-7".
func (h *HotObject) Object() string {
	return h.Kind + " " + strings.TrimPrefix(h.Namespace+"/"+h.Name, "/")
}

// Drain describes the drain of a member.
type Drain struct {
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// State is the state of a member.
type State string

// States of members, from good to bad.
const (
	// Working: it owns slots, and all of them are active.
	Working State = "Working"
	// Activating: some of its slots wait until it sees the former owner's last writes.
	Activating State = "Activating"
	// Waiting: it owns no slots yet, or the rota does not hold leader election's Lease.
	Waiting State = "Waiting"
	// Shadowing: it belongs to a shadow, and does no work.
	Shadowing State = "Shadow"
	// Drained: it was drained and has no slots until it is undrained (`rota drain`, `rota undrain`).
	Drained State = "Drained"
	// Draining: it was drained, and still has slots.
	Draining State = "Draining"
	// Leaving: its process is ending, and it hands over its slots.
	Leaving State = "Leaving"
	// Stopped: it shut its gate because it could not renew its Lease in time; or it has not renewed for longer than
	// RenewDeadline, so it has stopped or is gone.
	Stopped State = "Stopped"
	// Silent: its Lease expired. Others take its slots.
	Silent State = "Silent"
)

// Run is a run of neighboring hash slots with the same owner and state.
type Run struct {
	First int `json:"first"`
	Last  int `json:"last"`
	// Owner is a member's ID, or empty for no owner.
	Owner string `json:"owner,omitempty"`
	// Next is the member that they move to, or empty if they stay. Ready is true if it already holds their objects.
	Next  string `json:"next,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	// Activating is true if the owner does not work on them yet.
	Activating bool `json:"activating,omitempty"`
	// Since is the epoch at which the owner got them. Cause is "assigned", "handed" or "expelled", or empty if the table
	// no longer has it.
	Since uint64 `json:"sinceEpoch"`
	Cause string `json:"cause,omitempty"`
	// Closed is true if the owner's report does not list all of them as open. That alone is no problem, because slots move
	// and reports only come every few seconds.
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

// Move is a current move.
type Move struct {
	// First and Last are its slots. Duty is the duty's name if a duty moves.
	First int    `json:"first"`
	Last  int    `json:"last"`
	Duty  string `json:"duty,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	// Phase is "warm" (To lists), "drain" (From finishes its work, or waits for its turn), or "activate" (To owns the
	// slots and waits until it sees From's last writes).
	Phase string `json:"phase"`
	// Seconds is a lower bound on how long it has been in this phase, from To's report or the Reader's observations, or
	// nil if unknown.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Severity is the severity of a problem.
type Severity string

// Severities.
const (
	// Error: objects are not worked on, or may not be.
	Error Severity = "error"
	// Warn: something will go wrong, or is slow.
	Warn Severity = "warning"
)

// Problem is something that is wrong.
type Problem struct {
	Severity Severity `json:"severity"`
	// What is the kind of problem, such as "SlotUnowned". docs/troubleshooting.md has a section of that name.
	What string `json:"what"`
	// Slots are the affected slots, such as "0-15 17"; Member is the affected member. Either may be empty.
	Slots  string `json:"slots,omitempty"`
	Member string `json:"member,omitempty"`
	// Object is the affected object, such as "Website default/blog", if there is one.
	Object string `json:"object,omitempty"`
	// Message describes the problem and what to do.
	Message string `json:"message"`
}

// Handover is a finished move, as its new owner reported it.
type Handover struct {
	// Slots are the slots as text, and Count is their number. Duty is the name if it was a duty.
	Slots string `json:"slots,omitempty"`
	Count int    `json:"count"`
	Duty  string `json:"duty,omitempty"`
	// From is the former owner, or empty if there was none. To is the new one.
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Cause string `json:"cause"`
	// Epoch is the table's epoch at which To got the slots. Ended is when To began to work on them, by To's clock.
	Epoch uint64    `json:"epoch"`
	Ended time.Time `json:"ended"`
	// Warm is how long To listed, Drain how long it then waited for From to release them, and Activate the time from then
	// until To worked on them, in seconds by To's clock. A skipped phase is 0.
	Warm     float64 `json:"warmSeconds"`
	Drain    float64 `json:"drainSeconds"`
	Activate float64 `json:"activateSeconds"`
}

// Expel is the expel of a member, identified by its Pod.
type Expel struct {
	Pod string `json:"pod"`
	// At is by the clock of the member that expelled it, in whole seconds.
	At time.Time `json:"at"`
}

// Warning is a recent event of type Warning.
type Warning struct {
	At time.Time `json:"at"`
	// Member is the sender's Pod or ID. ID is the sender's ID if it is a current member.
	Member  string `json:"member,omitempty"`
	ID      string `json:"id,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// About is the member that it is about, if that is not the sender.
	About string `json:"about,omitempty"`
	// Over explains why the warning is over; it is empty if it may still apply.
	Over string `json:"over,omitempty"`
}

// Unread returns why something could not be read. what is an Unknown's What.
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
	// Err is the original error, if any.
	Err error `json:"-"`
}
