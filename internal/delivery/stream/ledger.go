package stream

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// entry is the state of a name at a version. Events, lists and look-ups at earlier versions are stale.
type entry struct {
	uid     string
	version string
	// slot is where the store has the object, if here.
	slot slot.Slot
	here bool
	// handled is true if another event at that version brings nothing new. It is false if the object is elsewhere, since
	// its slot may still be gained, and if a doubt is about that version.
	handled bool
	doubt   *Doubt
}

// Doubt is about an object in the store. The watch does not show whether it still exists, or how it changes. So it is
// looked up until it has ended, or the watch shows it again. A doubt that is no longer in the ledger is void.
type Doubt struct {
	Name Name
	uid  string
	slot slot.Slot
	// last is the object as it was last sent to the store, or as the event in doubt showed it.
	last Object
	// pending is true if an event waits for the look-up. The event shows last: the object may have left its slot. If no
	// event is pending, the object exists.
	pending bool
	// version is the version of the pending event, or of the last state sent.
	version string

	due   time.Duration
	pause time.Duration
	busy  bool
}

// ledger holds the latest state of each name.
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
		l.endedMax = later(l.endedMax, e.version)
	}
	l.entries[name] = e
}

func (l *ledger) forget(name Name) {
	delete(l.entries, name)
	delete(l.doubted, name)
	delete(l.ended, name)
}

// sweep forgets the names that the store does not have.
func (l *ledger) sweep() {
	for name := range l.ended {
		l.forget(name)
	}
	l.endedMax = ""
}

// stale reports whether an event at a version brings nothing new: it is older than the entry, or repeats it.
func (e entry) stale(version string) bool {
	c := compare(version, e.version)
	return c < 0 || c == 0 && (e.here || e.handled)
}

// shown reports whether a list brings nothing new: its version of the object is older than the entry's, or the same.
func (e entry) shown(version string) bool {
	c := compare(version, e.version)
	return c < 0 || c == 0 && e.handled
}
