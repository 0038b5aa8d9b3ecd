package replica

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// State holds a process's view of its rota across its incarnations. Its methods may be called concurrently.
type State struct {
	joined chan struct{}

	mu       sync.Mutex
	id       string
	snapshot member.Snapshot
	gone     bool   // the watch shows that there is no table
	invalid  string // why the member rejects the table, empty if it accepts it
	// deadline is the time after which nothing may be written. own is the deadline from the member's own Lease; deadline
	// is earlier while another candidate leads.
	deadline, own time.Duration
	renewed       bool // a deadline has been set
}

// NewState returns the state of a process that has not joined.
func NewState() *State { return &State{joined: make(chan struct{})} }

// Begin begins an incarnation. now is the time on the deadline clock; the former incarnation's deadline has passed.
func (s *State) Begin(id string, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.invalid = id, ""
	s.deadline = min(s.deadline, now)
}

// ID returns the identity of the current incarnation, empty before the first.
func (s *State) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Snapshot returns the last valid version of the table. The table may be gone by now.
func (s *State) Snapshot() member.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// Table returns the table of Snapshot, or nil if there is none.
func (s *State) Table() *table.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	return s.snapshot.Table
}

// Gone reports whether the watch shows that there is no table.
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

// See stores a version of the table unless a newer one is stored, and reports whether it did. The process has joined
// once a stored version lists its incarnation.
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

// Joined returns a channel that is closed when a table lists the process for the first time.
func (s *State) Joined() <-chan struct{} { return s.joined }

// HasJoined reports whether a table has listed the process.
func (s *State) HasJoined() bool {
	select {
	case <-s.joined:
		return true
	default:
		return false
	}
}

// Invalid returns why the table is invalid, so that nothing is worked on, or an empty string.
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

// SetDeadline sets the time after which nothing may be written, and the deadline from the member's own Lease.
func (s *State) SetDeadline(at, own time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline, s.own, s.renewed = at, own, true
}

// Deadline returns the arguments of the last SetDeadline; renewed is false if there was none.
func (s *State) Deadline() (at, own time.Duration, renewed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline, s.own, s.renewed
}
