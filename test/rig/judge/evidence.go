package judge

import (
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
)

// Evidence is what is known of a run. Times are by journal.Now unless they are of type time.Time.
type Evidence struct {
	World World
	// PodOf names the Pod of a process.
	PodOf func(process string) string
	// Audit is what the audit logs have of the run. Its Tables begin with the version from before the run, and leave out
	// those that no member wrote.
	Audit *Log
	// Seen are the versions of the table that a watch showed in the run, in order, but those that no member wrote. They
	// make up for writes that took effect although the API server answered with an error: the audit logs have no
	// version of those.
	Seen History
	// Versions are all versions of objects from the run, in order. Gaps is how often some of them may be missing.
	Versions []Recorded
	Gaps     int
	// Reconciles are those that had not ended when the run began, and later ones. Their Pod is the name of a process.
	// Ended is when processes ended.
	Reconciles []journal.Reconcile
	Ended      map[string]time.Duration
	Pauses     []Pause
	// Known are the UIDs of objects that were reconciled at any time.
	Known map[string]bool
	// Updates and Deletions are what the load did. Deletions are only of objects that were not created again.
	Updates   []Update
	Deletions []Deletion
	// Objects are there at the end.
	Objects []Final

	// Duties are the records of the rota's duties.
	Duties Duties

	// Begin and End bound the run. Of its first moment both clocks are known.
	Begin, End time.Duration
	BeginWall  time.Time
	// Reachable is when members could reach the API server again; 0: there was no time at which none could.
	Reachable time.Duration
	// Bound is how long a change may wait for its reconcile, from the later of its commit and Reachable.
	Bound time.Duration

	// Before and After are what there was when the campaign came to rest first, and after the run.
	Before, After Census
}

// at converts a time of the audit log.
func (e *Evidence) at(wall time.Time) time.Duration { return e.Begin + wall.Sub(e.BeginWall) }

// slotOf returns the slot of a reconcile; false where it cannot be told, of an object that is gone with key UID.
func (e *Evidence) slotOf(r journal.Reconcile) (slot.Slot, bool) {
	if e.World.Key == slot.KeyUID && r.UID == "" {
		return 0, false
	}
	return e.World.SlotOf(Site{NamespacedName: r.Key, UID: r.UID}), true
}

// Duties is what is known of the duties in a run. A duty writes to a ConfigMap of its name, and to nothing else.
type Duties struct {
	Names []string
	// Runs are in the journals: the runs of a duty's function, or the reconciles of its controller. Their key has the
	// duty's name. Their generation is the resourceVersion of the ConfigMap that a controller found in its cache, and 0
	// for a function.
	Runs []journal.Reconcile
	// Versions are all versions of the ConfigMaps.
	Versions []Recorded
	// Bound is the longest time from one write of a duty to its next one, while members can reach the API server.
	Bound time.Duration
}

// Recorded is a version of an object, by its watch.
type Recorded struct {
	Site
	// Number is the resourceVersion.
	Number string
	At     time.Time
	// Process wrote its status; "" where the status is that of the version before, or nobody's.
	Process string
}

// Pause is a time for which a process was stopped.
type Pause struct {
	Process  string
	From, To time.Duration
}

// Final is an object at the end.
type Final struct {
	Site
	// Generation is that of its specification, Observed the one that its status shows.
	Generation, Observed int64
}

// Writer returns the process that a status names: members write their process's name and a number.
func Writer(status string) string {
	process, _, _ := strings.Cut(status, " ")
	return process
}
