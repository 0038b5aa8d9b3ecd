package judge

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// crashSlack is what a crash takes beyond the lease and the fence delay: the change of the table, and the lists of the
// new owners.
const crashSlack = 4 * time.Second

// CrashBound is how long after a crash the new owners of a member's slots have begun to work on them at the latest: the
// promise *Never none* of docs/guarantees.md. Durations that are zero have their defaults.
func CrashBound(lease, renewDeadline, writeTimeout time.Duration) time.Duration {
	cfg := member.Config{LeaseDuration: lease, RenewDeadline: renewDeadline, WriteTimeout: writeTimeout}
	cfg.SetDefaults()
	return cfg.LeaseDuration + cfg.FenceDelay + crashSlack
}

// dutySlack is what a crash takes beyond the lease and the fence delay until another member does a duty: nothing has to
// be listed.
const dutySlack = 500 * time.Millisecond

// DutyBound is CrashBound for a duty of a member whose process ends while the API server answers.
func DutyBound(lease, renewDeadline, writeTimeout time.Duration) time.Duration {
	return CrashBound(lease, renewDeadline, writeTimeout) - crashSlack + dutySlack
}

// TakenOver returns how long after a kill the last of the slots had a new owner that works. worked is when a new owner
// was first seen to reconcile an object of a slot; slots that are not in it have nothing to be worked on, and are left
// out. That a slot is active stands in the table up to SettleDelay later than it is so, and the first reconcile may
// have waited in the queue: the earlier of the two counts.
func TakenOver(moves []Move, slots slot.Set, killed time.Duration, worked map[slot.Slot]time.Duration) time.Duration {
	var last time.Duration
	seen := slot.Set{}
	for _, m := range moves { // in the order in which they ended
		first, ok := worked[m.Slot]
		if ok && m.Active > killed && slots.Has(m.Slot) && !seen.Has(m.Slot) {
			seen.Add(m.Slot)
			last = max(last, min(first, m.Active)-killed)
		}
	}
	return last
}
