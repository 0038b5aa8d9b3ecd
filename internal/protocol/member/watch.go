package member

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// watch is this member's view of the other members' Leases (rule R1).
//
// Waits for others are measured in heard time. Heard time advances when the member sees its own renewal come back
// through the watch that shows the others' Leases. That proves that it renews and reads. So when the member stalls, or
// its watch lags, its judgment of others is delayed by as much.
type watch struct {
	serial uint64
	all    bool
	ids    []string
	// complete: the current watch has delivered its first answer.
	complete bool
	// since is the version of the table when the watch was requested. The watch shows newer Leases.
	since string
	heard time.Duration
	// echo is when this member's own Lease was last seen to change.
	echo    time.Duration
	version string
	others  map[string]*other
	// longest is Config.LongestWrite.
	longest time.Duration
	// step is by how much the last echo advanced heard. capped is set if more time had passed.
	step   time.Duration
	capped bool
	// suspects is set if at the last echo some Lease had been silent for nearly a lease.
	suspects bool
}

// other is the state of another member's Lease.
type other struct {
	lease   Lease
	missing bool
	// renewals counts the renewals seen, up to aliveAfter.
	renewals int
	// since is the heard time at which the Lease was last seen to change. It is pending until the next echo, so that it is
	// never too early.
	since   time.Duration
	pending bool
	// seen is when the change was seen, as Time.Mono.
	seen time.Duration
	// shut is the heard time at which the Lease was first seen with "shut" after its gate may have been open. Until the
	// next echo shutting is set instead.
	shut     time.Duration
	shutting bool
	// older is set if the process was seen to create or renew its Lease, and cannot read the newest format (rules R18,
	// R19).
	older bool
}

// covers reports whether the current watch shows a member's Lease.
func (w *watch) covers(id string) bool { return w.all || slices.Contains(w.ids, id) }

// seen records another member's Lease. live is false if it is from the first answer, which lists all watched Leases.
func (w *watch) seen(l Lease, now time.Duration, live bool) {
	o := w.others[l.ID]
	if o == nil {
		o = &other{}
		w.others[l.ID] = o
	}
	if !o.missing && o.lease.UID == l.UID && o.lease.Version == l.Version {
		return
	}
	was := *o
	*o = other{lease: l, pending: true, seen: now, shut: was.shut, shutting: was.shutting}
	// A Lease in a list may be left over from a process that has ended.
	o.older = olderLease(l) && (was.lease.UID == l.UID || live)
	if was.lease.UID == l.UID {
		o.renewals = min(was.renewals+1, aliveAfter)
	}
	// A member that has seen no table has not worked.
	if !l.Open && l.Epoch > 0 && (was.lease.Open || was.lease.UID == "") {
		o.shutting = true
	}
}

// listed records which Leases the first answer of the watch lacks.
func (w *watch) listed(ids map[string]bool) {
	w.complete = true
	for id := range w.others {
		switch {
		case ids[id]:
		case w.covers(id):
			w.missing(id, false)
		default:
			delete(w.others, id) // if it is watched again, its wait restarts (rule R3)
		}
	}
}

// expect records watched members without a Lease as missing.
func (w *watch) expect(members []table.Member, self string) {
	for _, m := range members {
		if m.ID != self && w.others[m.ID] == nil && w.covers(m.ID) {
			w.missing(m.ID, false)
		}
	}
}

// missing records that a watched Lease does not exist. The first sight restarts the wait: the member may be ending, or
// a person deleted the Lease. From then on the Lease counts as unchanged (rule R1). dead is set if the member was held
// dead before and no renewal can have been missed. Then the wait does not restart: another planner has deleted the
// Lease, and may die before it expels the member.
func (w *watch) missing(id string, dead bool) {
	o := w.others[id]
	if o == nil {
		// What it announced is unknown.
		w.others[id] = &other{lease: Lease{ID: id, LongestWrite: w.longest}, missing: true, pending: true}
		return
	}
	if !o.missing {
		pending := o.pending || !dead
		*o = other{lease: Lease{ID: id, LongestWrite: o.lease.LongestWrite}, missing: true, since: o.since, pending: pending}
	}
}

// echoed records that this member's own renewal came back, and advances heard time by at most limit. It reports whether
// the renewal was a new one.
func (w *watch) echoed(version string, now, limit time.Duration) bool {
	if version == w.version {
		return false
	}
	w.version = version
	if w.echo > 0 {
		gap := now - w.echo
		w.capped = gap > limit
		w.step = min(gap, limit)
		w.heard += w.step
	} else {
		w.capped = true
	}
	w.echo = now
	return true
}

// settle sets, at an echo, the heard time of what was seen since the last one. period is the time between renewals.
func (w *watch) settle(now, lease, period time.Duration) {
	w.suspects = false
	for _, o := range w.others {
		silence := w.heard - o.since
		if !o.pending && silence >= lease-period && silence < lease {
			w.suspects = true
		}
		if o.pending {
			o.pending, o.since = false, w.heard
			if !w.capped && o.seen > 0 {
				o.since -= min(w.step, now-o.seen) // the echo proves that the watch kept up since then
			}
		}
		if o.shutting {
			o.shutting, o.shut = false, w.heard
		}
	}
}

// silence returns the heard time since another member's Lease last changed, or 0 for a Lease that was never seen.
func (w *watch) silence(id string) time.Duration {
	o := w.others[id]
	if o == nil || o.pending {
		return 0
	}
	return w.heard - o.since
}

// expired reports whether another member's Lease has been unchanged for lease, this member's LeaseDuration. A member
// with a longer lease may send writes that last beyond that. Its Lease announces them, and the wait is longer.
func (w *watch) expired(id string, lease time.Duration) bool {
	if o := w.others[id]; o != nil {
		lease = max(lease, o.lease.LongestWrite)
	}
	return w.silence(id) >= lease
}

// renewing reports whether another member was seen to renew within this time. A missing Lease does not renew (rule R6).
func (w *watch) renewing(id string, within time.Duration) bool {
	o := w.others[id]
	return o != nil && !o.missing && w.silence(id) < within
}

// writesEnded reports whether all writes that a member sent before it shut its gate have ended, none of which takes
// longer than aftermath or than its Lease announced.
func (w *watch) writesEnded(o *other, aftermath time.Duration) bool {
	return o.lease.Epoch == 0 || !o.shutting && w.heard-o.shut >= max(aftermath, o.lease.LongestWrite)
}
