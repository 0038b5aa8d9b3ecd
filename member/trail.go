package member

import (
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// trail is which versions of the table this member knows to follow from those before (rule R16). Who has seen all versions, or
// is told by the Leases of what it missed, notices an old copy that was put over the table. Who reads the latest one only may
// not: by then the epochs that the copy hides may be reached again.
type trail struct {
	// known is the latest version that is known to follow.
	known string
	// begun is the version with which the watch began anew, later than known, and last the latest that it has shown since;
	// empty where the watch goes on from known.
	begun, last string
	// doubted is since when the table has not been known to follow; 0: it is.
	doubted time.Duration
}

// shown notes what the watch of the table shows.
func (tr *trail) shown(e TableSeen) {
	v := e.Snapshot.Version
	switch {
	case resourceversion.Compare(v, tr.known) <= 0:
	case e.Snapshot.Missing():
		tr.known, tr.begun, tr.last = v, "", "" // whatever comes begins here
	case e.Listed:
		tr.begun, tr.last = v, v
	case tr.begun == "":
		tr.known = v
	default:
		tr.last = later(tr.last, v)
	}
}

// vouch notes a version that is known to follow by another way: by Leases read after it was seen, or because this member wrote it.
func (tr *trail) vouch(version string) {
	tr.known = later(tr.known, version)
	if tr.begun != "" && resourceversion.Compare(tr.begun, tr.known) <= 0 {
		tr.known = later(tr.known, tr.last)
		tr.begun, tr.last = "", ""
	}
}

func later(a, b string) string {
	if resourceversion.Compare(a, b) < 0 {
		return b
	}
	return a
}

// follows says that the table is known to follow from the ones before. Nothing is written on top of one that is not, and no
// Lease is deleted by it. What it says of this member's own slots holds all the same: nobody else gives them up while its Lease is there.
func (m *Member) follows() bool {
	return resourceversion.Compare(m.snap.Version, m.trail.known) <= 0
}

// asksLeases says that all Leases have to be read to make sure of the table. Usually its watch does that in a moment; not for a
// newcomer, where the watch began anew, or where it is silent.
func (m *Member) asksLeases() bool {
	doubted := m.table() != nil && !m.follows()
	silent := m.waited(&m.trail.doubted, doubted, m.cfg.RetryPeriod)
	return doubted && (m.trail.known == "" || m.trail.begun != "" || silent)
}
