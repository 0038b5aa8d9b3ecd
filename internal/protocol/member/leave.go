package member

import (
	"errors"
	"fmt"
)

// leave starts leaving (rule R9).
func (m *Member) leave() {
	switch m.phase {
	case starting:
		m.refused = nil // the process asked it to end
		if m.lease.underWay {
			m.part() // the Lease may exist by now
			return
		}
		m.stop(nil, false)
	case joining:
		m.phase = leaving // followTable goes on once the swap in flight is answered
	case joined:
		m.phase = leaving
		m.note("Leaving", false, "handing over what this member owns")
	case leaving, parting, ended:
	}
}

// ErrIdentity is wrapped by the error of a Stop because another process has the same identity.
var ErrIdentity = errors.New("the identity is in use")

// yield ends this member because a live one has its identity.
func (m *Member) yield(namesake string) {
	m.refused = fmt.Errorf("%w: member %s, which renews its Lease, has the same pod name, %s: "+
		"give every replica its own pod name", ErrIdentity, namesake, m.cfg.Self.Pod)
	m.note("IdentityInUse", true, "member %s ends: %v", m.cfg.Self.ID, m.refused)
	m.part()
}

// part deletes the member's own Lease, as its last request.
func (m *Member) part() {
	m.phase = parting
	m.shutAll()
	m.keepParting()
}

// keepParting deletes the Lease once no renewal is in flight, whose answer carries the version to delete.
func (m *Member) keepParting() {
	id := m.cfg.Self.ID
	switch {
	case m.lease.underWay || m.deleting[id]:
	case m.lease.mine.UID == "":
		m.stop(nil, false)
	default:
		m.deleting[id] = true
		m.do(DeleteLease{ID: id, UID: m.lease.mine.UID, Version: m.lease.mine.Version, Timeout: m.longest()})
	}
}
