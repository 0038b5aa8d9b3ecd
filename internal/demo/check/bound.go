package check

import (
	"time"

	"github.com/rota-dev/rota/member"
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

// TakenOver returns how long after a kill the last of the slots had a new owner that was active. Slots that never had
// one are left out.
func TakenOver(moves []Move, slots slot.Set, killed time.Duration) time.Duration {
	var last time.Duration
	seen := slot.Set{}
	for _, m := range moves { // in the order in which they ended
		if m.Active > killed && slots.Has(m.Slot) && !seen.Has(m.Slot) {
			seen.Add(m.Slot)
			last = m.Active - killed
		}
	}
	return last
}
