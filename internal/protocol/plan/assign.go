package plan

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// maxWeight keeps products of weights and slots far from overflow.
const maxWeight = 1 << 20

// Member is a member that owns slots or may get some.
type Member struct {
	// ID is unique and not empty.
	ID string
	// Weight scales the fair share, from 1 to 1<<20. Weights outside the range are clamped.
	Weight int
	// Receives is set if the member may get slots. A member that neither receives nor leaves keeps its slots, up to its
	// fair share.
	Receives bool
	// Leaves is set if all slots of the member must go elsewhere. Such a member does not receive.
	Leaves bool
	// Prefer is set for members of the latest joiner's build. While Input.Tolerant, slots that must move go to these
	// members first, up to 1.25 times their fair share (rule R9). Otherwise Prefer is ignored.
	Prefer bool
}

// Input is the input of Assign, which does not change it.
type Input struct {
	// Owners has an entry for each slot: its owner once the current moves are done, or "". An ID that is not in Members
	// counts as a leaver's. There are at most slot.MaxCount slots.
	Owners []string
	// Moving are the slots that are already moving. They stay with Owners[s] unless that member leaves or is gone.
	Moving slot.Set
	// Members are the members, in any order.
	Members []Member
	// Tolerant is set during a rollout, when most slots will soon move again. A member with at most 1.25 times its fair
	// share then gives up nothing. (The limit is rounded down, but is at least the fair share rounded up.)
	Tolerant bool
	// Only, unless empty, is the only member whose slots may move. All other slots stay as they are, even those without an
	// owner. A leaver uses it to plan its own moves. (A member that stays may also use it. But since the other members
	// count with the slots that they have, rounding may take one more slot from it in each plan.)
	Only string
}

// Values of assignment.own that are not an index of a member.
const (
	free    = -1 // must get an owner
	foreign = -2 // may not move, and its owner does not count
)

// assignment is the work in progress. It excludes members that leave: their slots are free.
type assignment struct {
	members []Member // by rising ID
	own     []int    // per slot: index into members, free or foreign
	fixed   []bool   // per slot: never to be taken from its owner
	have    []int    // per member: slots owned at first
	pinned  []int    // per member: slots of have that are fixed
}

// Assign returns the owner of every slot. It makes the fewest changes to Input.Owners that lead to this:
//
//   - Every slot has an owner that does not leave. If no member receives, the slots of leavers and those without an
//     owner, and no others, end without an owner.
//   - Every member that receives has its fair share, rounded up or down. The fair share is the member's weight times a
//     common level that hands out all slots. But a member that does not receive gets no more than it has, and each
//     member has at least the slots that are moving to it (weighted max-min fairness).
//   - While Tolerant, members give up slots only as Tolerant allows. Members below their fair share take only what must
//     move anyway, the lowest first.
//
// The result is a new slice. It is a function of the input, and the order of Members does not matter.
func Assign(in Input) []string {
	a := newAssignment(in)
	if slices.ContainsFunc(a.members, func(m Member) bool { return m.Receives }) {
		give, take := a.quotas(in.Tolerant)
		a.release(give, take)
		a.place(take)
	}
	return a.owners(in.Owners)
}

// owners returns the resulting owners. before are the owners in the input.
func (a *assignment) owners(before []string) []string {
	out := slices.Clone(before)
	for s, o := range a.own {
		switch o {
		case foreign:
		case free:
			out[s] = ""
		default:
			out[s] = a.members[o].ID
		}
	}
	return out
}

func newAssignment(in Input) *assignment {
	a := &assignment{own: make([]int, len(in.Owners)), fixed: make([]bool, len(in.Owners))}
	for _, m := range in.Members {
		if !m.Leaves {
			m.Weight = min(max(m.Weight, 1), maxWeight)
			a.members = append(a.members, m)
		}
	}
	slices.SortFunc(a.members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	index := make(map[string]int, len(a.members))
	for i, m := range a.members {
		index[m.ID] = i
	}
	a.have, a.pinned = make([]int, len(a.members)), make([]int, len(a.members))
	for s, id := range in.Owners {
		i, stays := index[id]
		mine := in.Only == "" || in.Only == id
		switch {
		case stays:
			a.own[s] = i
			a.fixed[s] = !mine || in.Moving.Has(slot.Slot(s))
			a.have[i]++
			if a.fixed[s] {
				a.pinned[i]++
			}
		case mine:
			a.own[s] = free
		default:
			a.own[s] = foreign
		}
	}
	return a
}
