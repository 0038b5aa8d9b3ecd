package judge

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Version is one version of the table.
type Version struct {
	// Version is its resourceVersion.
	Version string
	// User is who wrote it, where the version comes from an audit log.
	User string
	// At is when it was seen, by journal.Now.
	At time.Duration
	// Received and Done are when the API server got the write that made it, and when it had answered; zero where the
	// version does not come from an audit log.
	Received, Done time.Time
	Table          *table.Table
}

// Owner returns the process that owns the slot in this version, or "".
func (v Version) Owner(s slot.Slot) string {
	m, _ := v.Table.Member(v.Table.At(s).Owner)
	return m.Pod
}

// DutyOwner returns the process that owns the duty of that name in this version, or "".
func (v Version) DutyOwner(name string) string {
	s, ok := v.Table.DutySlot(name)
	if !ok {
		return ""
	}
	return v.Owner(s)
}

// History is the table's versions, in order.
type History []Version

// At returns the latest version of the table not above the resourceVersion; false where there is none.
func (h History) At(version string) (Version, bool) {
	i := len(h)
	for i > 0 && resourceversion.Compare(h[i-1].Version, version) > 0 {
		i--
	}
	if i == 0 {
		return Version{}, false
	}
	return h[i-1], true
}

// Move is a slot's way from one owner to another.
type Move struct {
	Slot slot.Slot
	// From and To are processes. From is empty for a slot's first owner.
	From, To string
	// Planned is when the first version was seen in which the slot was on its way: with a next owner, without owner,
	// or with a new owner that is not active yet. Active is when the new owner had said that it is active.
	Planned, Active time.Duration
	// Transfers is how often the slot changed hands in between: 1, unless it moved on before it was active.
	Transfers int
}

// Moves returns every move that had ended by the last version, in the order in which they ended.
func (h History) Moves() []Move {
	if len(h) == 0 {
		return nil
	}
	type state struct {
		settled string // the last owner that was active
		last    string // the last owner
		moving  *Move
	}
	states := make([]state, h[0].Table.Slots)
	var out []Move
	for _, v := range h {
		for s := range states {
			st := &states[s]
			run := v.Table.At(slot.Slot(s))
			owner := v.Owner(slot.Slot(s))
			if st.moving == nil && (run.Next != "" || owner == "" || run.Unsettled || owner != st.settled) {
				st.moving = &Move{Slot: slot.Slot(s), From: st.settled, Planned: v.At}
			}
			if owner != "" && owner != st.last {
				st.last = owner
				if st.moving != nil {
					st.moving.Transfers++
				}
			}
			if owner == "" || run.Next != "" || run.Unsettled || st.moving == nil {
				continue
			}
			if st.moving.Transfers > 0 {
				st.moving.To, st.moving.Active = owner, v.At
				out = append(out, *st.moving)
			}
			st.settled, st.moving = owner, nil
		}
	}
	return out
}

// Quiet says what the table still waits for, or "" if nothing moves and exactly these processes are members.
func Quiet(t *table.Table, pods []string) string {
	if t == nil {
		return "there is no table"
	}
	have := map[string]bool{}
	for _, m := range t.Members {
		have[m.Pod] = true
		if m.Leaving {
			return m.Pod + " is leaving"
		}
	}
	for _, pod := range pods {
		if !have[pod] {
			return pod + " has not joined"
		}
		delete(have, pod)
	}
	for pod := range have {
		return pod + " is still a member"
	}
	for _, r := range t.Runs {
		switch {
		case r.Owner == "":
			return "slots " + r.Slots.String() + " belong to nobody"
		case r.Next != "":
			return "slots " + r.Slots.String() + " are moving"
		case r.Unsettled:
			return "slots " + r.Slots.String() + " are not active yet"
		}
	}
	counts := t.Counts()
	low, high := int(t.Slots), 0
	for _, n := range counts {
		low, high = min(low, n), max(high, n)
	}
	if high-low > 1 {
		return "the shares are not even yet"
	}
	return ""
}
