package plan

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// maxWeight keeps products of weights and slots far from overflow.
const maxWeight = 1 << 20

// Member is one who owns slots or may get some.
type Member struct {
	// ID is unique and not empty.
	ID string
	// Weight scales the fair share, from 1 to 1<<20; what lies outside counts as the nearest of the two.
	Weight int
	// Receives says that the member may get slots. One that neither receives nor leaves keeps what it has, up to
	// its fair share.
	Receives bool
	// Leaves says that all slots of the member must go elsewhere. It does not receive then.
	Leaves bool
	// Prefer marks the members of the latest joiner's build: while Input.Tolerant, slots that must move go to
	// them first, up to 1.25 times their fair share (rule R9). It means nothing otherwise.
	Prefer bool
}

// Input is what Assign looks at. It is not changed.
type Input struct {
	// Owners has an entry per slot, at most slot.MaxCount: who will own it once the moves under way are
	// done. Empty: nobody. An ID that is not in Members counts as a leaver's.
	Owners []string
	// Moving are the slots that are moving already. They stay with Owners[s] unless that one leaves or is gone.
	Moving slot.Set
	// Members in any order.
	Members []Member
	// Tolerant says that a rollout runs: nobody gives up slots who has at most 1.25 times the fair share (rounded
	// down, but at least the fair share rounded up), since most of them will move once more soon.
	Tolerant bool
	// Only, unless empty, is the one whose slots may move; all other slots stay as they are, even those that
	// nobody owns. A leaver plans its own moves with it. (One that stays may plan, too, but since all others count
	// with what they have, plan after plan may take a slot more from it, by rounding.)
	Only string
}

// Values of assignment.own that are no index of a member.
const (
	free    = -1 // must get an owner
	foreign = -2 // not ours to move, owned by nobody who counts
)

// assignment is the work in progress. Members that leave are not in it: their slots are free.
type assignment struct {
	members []Member // by rising ID
	own     []int    // per slot: index into members, free or foreign
	fixed   []bool   // per slot: never to be taken from its owner
	have    []int    // per member: slots owned at the beginning
	pinned  []int    // per member: those of them that are fixed
}

// Assign returns for every slot who shall own it: Input.Owners with the fewest changes after which
//
//   - no slot is without owner, or a leaver's, provided that some member receives; otherwise those slots, and only
//     those, have no owner;
//   - every member that receives has its fair share, rounded up or down. The fair share is the member's weight times
//     the one level at which all slots are handed out, where a member that does not receive has at most what it has
//     now, and everybody at least what is moving to it (weighted max-min fairness);
//   - while Tolerant, instead, nobody gives up more than Tolerant says, and those below their fair share take only
//     what must move anyway, the lowest first.
//
// The result is a new slice and a function of the input, whatever the order of Members.
func Assign(in Input) []string {
	a := newAssignment(in)
	out := slices.Clone(in.Owners)
	if slices.ContainsFunc(a.members, func(m Member) bool { return m.Receives }) {
		give, take := a.quotas(in.Tolerant)
		a.release(give, take)
		a.place(take)
	}
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
