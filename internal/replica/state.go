package replica

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// State is what a process knows of its rota, in whichever incarnation it is. Its methods may be called concurrently.
type State struct {
	joined chan struct{}

	mu       sync.Mutex
	id       string
	snapshot member.Snapshot
	gone     bool   // the watch shows no table
	invalid  string // what the member said of a table that it cannot go by; empty: there is none
	// deadline is the time after which nothing may be written, own that of the member's own Lease: deadline is earlier
	// while another one leads.
	deadline, own time.Duration
	renewed       bool // there is a deadline
}

// NewState returns the state of a process that has not joined.
func NewState() *State { return &State{joined: make(chan struct{})} }

// Begin begins an incarnation. now is the time by which deadlines are measured: that of the former one is over.
func (s *State) Begin(id string, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.invalid = id, ""
	s.deadline = min(s.deadline, now)
}

// ID returns the identity of the present incarnation; empty: there was none.
func (s *State) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Snapshot returns the last version of the table that members with these options go by, though it may be gone.
func (s *State) Snapshot() member.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// Table returns that version; nil: there is no table.
func (s *State) Table() *table.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	return s.snapshot.Table
}

// Gone says that the watch shows no table.
func (s *State) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *State) setGone(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

// See keeps a version of the table, unless a newer one is known. It says whether it did. The process has joined if that
// version names its incarnation.
func (s *State) See(of member.Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.snapshot; old.UID == of.UID && resourceversion.Compare(old.Version, of.Version) > 0 {
		return false
	}
	s.snapshot = of
	if _, named := of.Table.Member(s.id); named && !s.HasJoined() {
		close(s.joined)
	}
	return true
}

// Joined is closed when a table names the process for the first time.
func (s *State) Joined() <-chan struct{} { return s.joined }

// HasJoined says whether a table has named the process.
func (s *State) HasJoined() bool {
	select {
	case <-s.joined:
		return true
	default:
		return false
	}
}

// Invalid says why nothing is worked on: the table is invalid. Empty: it is not.
func (s *State) Invalid() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.invalid
}

func (s *State) setInvalid(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invalid = why
}

// SetDeadline sets the time after which nothing may be written, and that of the member's own Lease.
func (s *State) SetDeadline(at, own time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline, s.own, s.renewed = at, own, true
}

// Deadline returns what SetDeadline was told last; renewed says whether it ever was.
func (s *State) Deadline() (at, own time.Duration, renewed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline, s.own, s.renewed
}
