package member

import (
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// trail is which versions of the table this member knows to follow from the ones before (rule R16). An old copy put
// over the table is noticed by a member that has seen all versions, or that learns from the Leases what it missed. It
// may go unnoticed by a member that reads only the latest version: by then the epochs that the copy hides may be
// reached again.
type trail struct {
	// known is the latest version that is known to follow.
	known string
	// begun is the version at which the watch restarted, later than known. last is the latest version that it has shown
	// since. Both are empty while the watch goes on from known.
	begun, last string
	// doubted is since when the table has not been known to follow; 0: it is known.
	doubted time.Duration
}

// shown records a version that the watch of the table shows.
func (tr *trail) shown(e TableSeen) {
	v := e.Snapshot.Version
	switch {
	case resourceversion.Compare(v, tr.known) <= 0:
	case e.Snapshot.Missing():
		tr.known, tr.begun, tr.last = v, "", "" // whatever comes next starts here
	case e.Listed:
		tr.begun, tr.last = v, v
	case tr.begun == "":
		tr.known = v
	default:
		tr.last = later(tr.last, v)
	}
}

// vouch records a version that is known to follow for another reason: Leases were read after it was seen, or this
// member wrote it.
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

// follows says that the table is known to follow from the ones before. If it is not, this member does not write on top
// of it and deletes no Lease because of it. It still believes what the table says of its own slots: nobody else gives
// those up while its Lease is there.
func (m *Member) follows() bool {
	return resourceversion.Compare(m.snap.Version, m.trail.known) <= 0
}

// asksLeases says that this member must read all Leases to be sure of the table. Usually the watch of the table proves
// it in a moment. It does not for a newcomer, after the watch restarted, or while it is silent.
func (m *Member) asksLeases() bool {
	doubted := m.table() != nil && !m.follows()
	silent := m.waited(&m.trail.doubted, doubted, m.cfg.RetryPeriod)
	return doubted && (m.trail.known == "" || m.trail.begun != "" || silent)
}
