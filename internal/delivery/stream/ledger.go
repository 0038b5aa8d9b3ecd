package stream

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// entry is what is known of a name, at version known and before.
type entry struct {
	uid   string
	known string
	// slot is where the store has the object, if here.
	slot slot.Slot
	here bool
	// told is true if another event of that version is no news. It is false where the object is elsewhere, since its slot
	// may be gained yet, and where a doubt is about that very version.
	told  bool
	doubt *Doubt
}

// Doubt is about an object in the store. The watch does not show whether it still exists, or what becomes of it. So it
// is looked up until it has ended, or the watch shows it again. A doubt that is not in the ledger any more is void.
type Doubt struct {
	Name Name
	uid  string
	slot slot.Slot
	// last is the object as it was last sent to the store, or as the event in doubt showed it.
	last Object
	// pending: an event waits for the look-up. It shows last, and says that the object may have left its slot. Where no
	// event is pending the object is known to exist.
	pending bool
	// version is the version of the pending event, or of the last state sent.
	version string

	due   time.Duration
	pause time.Duration
	busy  bool
}

// ledger holds what is known, by name.
type ledger struct {
	entries map[Name]entry
	// doubted are the names with a doubt. ended are those that the store does not have, and endedMax is the latest of
	// their versions.
	doubted, ended map[Name]struct{}
	endedMax       string
}

func newLedger() ledger {
	return ledger{entries: map[Name]entry{}, doubted: map[Name]struct{}{}, ended: map[Name]struct{}{}}
}

func (l *ledger) set(name Name, e entry) {
	if e.doubt != nil {
		l.doubted[name] = struct{}{}
	} else {
		delete(l.doubted, name)
	}
	if e.here {
		delete(l.ended, name)
	} else {
		l.ended[name] = struct{}{}
		l.endedMax = later(l.endedMax, e.known)
	}
	l.entries[name] = e
}

func (l *ledger) forget(name Name) {
	delete(l.entries, name)
	delete(l.doubted, name)
	delete(l.ended, name)
}

// sweep forgets what has ended.
func (l *ledger) sweep() {
	for name := range l.ended {
		l.forget(name)
	}
	l.endedMax = ""
}

// stale reports whether an event is of a version before the known one, or repeats the known one.
func (e entry) stale(version string) bool {
	c := compare(version, e.known)
	return c < 0 || c == 0 && (e.here || e.told)
}

// shown says that a list shows nothing new: its version of the object is before the known one, or the same.
func (e entry) shown(version string) bool {
	c := compare(version, e.known)
	return c < 0 || c == 0 && e.told
}
