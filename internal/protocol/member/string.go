package member

import (
	"fmt"
	"strings"
)

// Events and actions print themselves in one line, for traces.

func (s Snapshot) String() string {
	switch {
	case s.Missing():
		return "missing@" + s.Version
	case s.Err != nil:
		return fmt.Sprintf("%s@%s %v", s.UID, s.Version, s.Err)
	case s.Table == nil:
		return fmt.Sprintf("%s@%s no table", s.UID, s.Version)
	}
	return fmt.Sprintf("%s@%s epoch=%d", s.UID, s.Version, s.Table.Epoch)
}

func (l Lease) String() string {
	return fmt.Sprintf("%s@%s open=%v epoch=%d", l.ID, l.Version, l.Open, l.Epoch)
}

func (Tick) String() string { return "Tick" }

func (e Renewed) String() string {
	return fmt.Sprintf("Renewed %v version=%s open=%v start=%v", e.Outcome, e.Lease.Version, e.Lease.Open, e.Start)
}

func (e TableSeen) String() string {
	return fmt.Sprintf("TableSeen %v consistent=%v", e.Snapshot, e.Consistent)
}

func (ReadFailed) String() string { return "ReadFailed" }

func (e Swapped) String() string { return fmt.Sprintf("Swapped %v %v", e.Outcome, e.Snapshot) }

func (e LeasesSeen) String() string {
	var b strings.Builder
	for _, l := range e.Leases {
		fmt.Fprintf(&b, " %v", l)
	}
	return fmt.Sprintf("LeasesSeen complete=%v%s gone=%v", e.Complete, b.String(), e.Gone)
}

func (e LeaseDeleted) String() string { return fmt.Sprintf("LeaseDeleted %s %v", e.ID, e.Outcome) }

func (e Warmed) String() string { return fmt.Sprintf("Warmed %v", e.Slots) }

func (e Drained) String() string {
	return fmt.Sprintf("Drained %v %v gone=%v", e.Slots, e.Versions, e.Gone)
}

func (e Loaded) String() string { return fmt.Sprintf("Loaded %v", e.Slots) }

func (e LoadsSeen) String() string { return fmt.Sprintf("LoadsSeen of %d members", len(e.Reports)) }

func (Lapsed) String() string { return "Lapsed" }

func (e LongWrites) String() string { return fmt.Sprintf("LongWrites until=%v", e.Until) }

func (e ShortWrites) String() string { return fmt.Sprintf("ShortWrites %d", e.Round) }

func (Leave) String() string { return "Leave" }

func (a CreateLease) String() string { return fmt.Sprintf("CreateLease open=%v", a.Lease.Open) }

func (a RenewLease) String() string {
	return fmt.Sprintf("RenewLease open=%v epoch=%d timeout=%v", a.Lease.Open, a.Lease.Epoch, a.Timeout)
}

func (ReadTable) String() string { return "ReadTable" }

func (a CreateTable) String() string { return fmt.Sprintf("CreateTable %v", a.Table) }

func (a Swap) String() string { return fmt.Sprintf("Swap on %s: %v", a.Version, a.Table) }

func (ReadLoads) String() string { return "ReadLoads" }

func (a WatchLeases) String() string { return fmt.Sprintf("WatchLeases all=%v %v", a.All, a.IDs) }

func (a DeleteLease) String() string {
	return fmt.Sprintf("DeleteLease %s uid=%s version=%s", a.ID, a.UID, a.Version)
}

func (a Hold) String() string { return fmt.Sprintf("Hold %v", a.Slots) }

func (a Warm) String() string { return fmt.Sprintf("Warm %v", a.Slots) }

func (a Drain) String() string { return fmt.Sprintf("Drain %v room=%d", a.Slots, a.Room) }

func (a Load) String() string {
	return fmt.Sprintf("Load %v %v held=%v %v gone=%v", a.Slots, a.Cause, a.Held, a.Versions, a.Gone)
}

func (a Open) String() string { return fmt.Sprintf("Open %v epoch=%d", a.Slots, a.Epoch) }

func (a Shut) String() string { return fmt.Sprintf("Shut %v", a.Slots) }

func (a Release) String() string { return fmt.Sprintf("Release %v", a.Slots) }

func (a Deadline) String() string { return fmt.Sprintf("Deadline %v", a.At) }

func (a AllowLong) String() string { return fmt.Sprintf("AllowLong %v", a.Allowed) }

func (a Notify) String() string { return fmt.Sprintf("Notify %s: %s", a.Reason, a.Message) }

func (a Stop) String() string { return fmt.Sprintf("Stop rejoin=%v err=%v", a.Rejoin, a.Err) }

// String returns the outcome in lower case, as in metrics.
func (o Outcome) String() string {
	switch o {
	case OutcomeDone:
		return "done"
	case OutcomeConflict:
		return "conflict"
	case OutcomeMissing:
		return "missing"
	case OutcomeFailed:
		return "failed"
	default:
		return "unknown"
	}
}
