package sim

import "time"

// Fault is a kind of what Chaos does to a rota.
type Fault uint8

// Kinds of faults. Some are no faults but what happens to rotas on any day, at the wrong moment.
const (
	FaultUnknown Fault = iota
	// FaultPause: nothing runs in a process for a while.
	FaultPause
	// FaultStall: processes stop between two actions of one Step, and in the middle of writes.
	FaultStall
	// FaultCrash: a process ends without a word, and is restarted in its container or replaced.
	FaultCrash
	// FaultCrashAtCall: processes end between two actions of one Step.
	FaultCrashAtCall
	// FaultCrashAll: most processes end at once.
	FaultCrashAll
	// FaultLeave: SIGTERM, and another pod.
	FaultLeave
	// FaultGrow: one more pod.
	FaultGrow
	// FaultTwin: a second process with the pod name of another.
	FaultTwin
	// FaultRollout: every pod is replaced by one of another build, perhaps of another newest table format.
	FaultRollout
	// FaultScale: down to one pod and up again.
	FaultScale
	// FaultChurn: up to twenty pods and down to one.
	FaultChurn
	// FaultOutage: no API server answers, and watches are silent.
	FaultOutage
	// FaultServerDown: one of the two API servers ends its connections and takes no new ones.
	FaultServerDown
	// FaultServerLag: what one of the two API servers shows to watches, and to reads of any version, is old.
	FaultServerLag
	// FaultWatchStall: a member's watches bring nothing for a while, then everything.
	FaultWatchStall
	// FaultWatchBreak: a member's watches break, and go on from their position or list anew, perhaps at the other
	// server.
	FaultWatchBreak
	// FaultCompaction: positions of before are gone (410) for watches that break and for lists that go on.
	FaultCompaction
	// FaultAnswersLost: answers to requests get lost.
	FaultAnswersLost
	// FaultRequestsLost: requests get lost or are refused.
	FaultRequestsLost
	// FaultLateWrites: writes are admitted after the client gave up.
	FaultLateWrites
	// FaultLateSwaps: one member's changes of the table are.
	FaultLateSwaps
	// FaultRenewals: one member's renewals are late or lost.
	FaultRenewals
	// FaultReads: one member's reads of the table are lost, and its watches silent.
	FaultReads
	// FaultDeaf: one member's requests arrive, no answers and no events do.
	FaultDeaf
	// FaultMute: one member's requests do not arrive, events do.
	FaultMute
	// FaultClock: one member's clock changes its rate.
	FaultClock
	// FaultSlowStores: to list and to follow objects takes one member long.
	FaultSlowStores
	// FaultLeaseDeleted, FaultTableDeleted, FaultAllDeleted: by hand.
	FaultLeaseDeleted
	FaultTableDeleted
	FaultAllDeleted
	// FaultRestore: an old copy of the table is restored under a new UID.
	FaultRestore
	// FaultOverwrite: an old copy is put over the table, and half a minute later the table is deleted.
	FaultOverwrite
	// FaultForeignTable: a table that the members cannot read takes the table's place, and is deleted half a minute
	// later.
	FaultForeignTable
	// FaultSleep, in paced lives: a member's machine sleeps, and its monotonic clock stands still.
	FaultSleep
	// FaultCrowd, in paced lives: the goroutine that steps a member waits for the processor before each Step and each
	// action.
	FaultCrowd
	// Faults is one more than the last kind.
	Faults
)

var faultNames = [Faults]string{
	"unknown", "pause", "stall", "crash", "crash at call", "crash of all", "leave", "grow", "twin", "rollout", "scale",
	"churn",
	"outage", "server down", "server lags", "watch stalls", "watch breaks", "compaction", "answers lost", "requests lost",
	"late writes", "late swaps", "renewals fail", "reads fail", "deaf", "mute", "clock", "slow stores", "lease deleted",
	"table deleted", "all deleted", "restore", "overwrite", "foreign table", "sleep", "crowd",
}

// String names the kind.
func (f Fault) String() string { return faultNames[f] }

// global says that the fault is not one member's.
func (f Fault) global() bool {
	switch f {
	case FaultStall, FaultCrashAtCall, FaultCrashAll, FaultGrow, FaultRollout, FaultScale, FaultChurn, FaultOutage,
		FaultServerDown, FaultServerLag, FaultAnswersLost, FaultRequestsLost, FaultLateWrites, FaultTableDeleted,
		FaultAllDeleted, FaultRestore, FaultOverwrite, FaultForeignTable:
		return true
	default:
		return false
	}
}

// FaultSpan is a fault that happened: its time, and the member it hit, if it hit one.
type FaultSpan struct {
	Fault      Fault
	Who        string
	From, Till time.Duration
}

// near is how long after its end a fault still counts as one that another followed: a lease.
const near = 15 * time.Second

// noteFault records a fault that begins now and lasts for d; n may be nil.
func (w *World) noteFault(f Fault, n *Node, d time.Duration) {
	t := FaultSpan{Fault: f, From: w.now, Till: w.now + d}
	if n != nil {
		t.Who = n.ID
	}
	for _, before := range w.Faults {
		if before.Till+near >= w.now {
			w.Coverage.Pairs[before.Fault][f]++
		}
	}
	w.Coverage.Pairs[FaultUnknown][f]++
	w.Faults = append(w.Faults, t)
}
