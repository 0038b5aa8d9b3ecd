package member

import (
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// trail tracks which versions of the table are proven to follow from the ones before (rule R16). A member that has seen
// all versions, or learns from the Leases what it missed, notices an old copy that was put over the table. A member
// that reads only the latest version may miss it: meanwhile new versions may have reached the epochs that the copy
// lacks.
type trail struct {
	// proven is the latest version that is proven to follow.
	proven string
	// begun is the version at which the watch restarted, later than proven. last is the latest version that it has shown
	// since then. Both are empty while the watch has not been interrupted since proven.
	begun, last string
	// unproven is since when the table has not been proven to follow, or 0 if it is proven.
	unproven time.Duration
}

// shown records a version that the watch of the table shows.
func (tr *trail) shown(e TableSeen) {
	v := e.Snapshot.Version
	switch {
	case resourceversion.Compare(v, tr.proven) <= 0:
	case e.Snapshot.Missing():
		tr.proven, tr.begun, tr.last = v, "", "" // later versions start here
	case e.Listed:
		tr.begun, tr.last = v, v
	case tr.begun == "":
		tr.proven = v
	default:
		tr.last = later(tr.last, v)
	}
}

// prove records a version that is proven in another way: Leases were read after it was seen, or this member wrote it.
func (tr *trail) prove(version string) {
	tr.proven = later(tr.proven, version)
	if tr.begun != "" && resourceversion.Compare(tr.begun, tr.proven) <= 0 {
		tr.proven = later(tr.proven, tr.last)
		tr.begun, tr.last = "", ""
	}
}

func later(a, b string) string {
	if resourceversion.Compare(a, b) < 0 {
		return b
	}
	return a
}

// follows reports whether a version of the table is proven to follow from the ones before. If it is not, this member
// does not write on top of it and deletes no Lease because of it. It still uses what the table contains about its own
// slots, since no other member gives those up while its Lease exists.
func (tr *trail) follows(version string) bool {
	return resourceversion.Compare(version, tr.proven) <= 0
}
