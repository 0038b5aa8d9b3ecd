package plan

import (
	"slices"

	"github.com/rota-dev/rota/slot"
)

// FitInput is the input of Fit, which does not change it.
type FitInput struct {
	// Owners and Target have an entry for each slot: its current owner and the owner in the plan.
	Owners, Target []string
	// Stays reports whether a member can keep its slots. Receives are the members that may get slots.
	Stays    func(id string) bool
	Receives []string
	// Instead reports whether a member may get slot s in place of Target[s].
	Instead func(s int, id string) bool
	// Room is how many more slots a member can take. A member without an entry can take any number.
	Room map[string]int
}

// Fit reduces the target to the slots that members have room for. A slot that needs an owner and does not fit with its
// target goes to the member with the most room. If no member has room, the slot gets no owner and is in waits. Other
// slots that do not fit stay where they are.
func Fit(in FitInput) (owners []string, waits slot.Set) {
	owners = slices.Clone(in.Target)
	left := make(map[string]int, len(in.Receives))
	for _, id := range in.Receives {
		left[id] = len(owners)
		if n, limited := in.Room[id]; limited {
			left[id] = n
		}
	}
	take := func(id string) bool {
		n, known := left[id]
		left[id] = n - 1
		return !known || n > 0
	}
	var homeless, moves []int
	for s, to := range in.Target {
		switch {
		case to == "" || to == in.Owners[s]:
		case in.Stays(in.Owners[s]):
			moves = append(moves, s)
		case !take(to):
			homeless = append(homeless, s)
		}
	}
	last := ""
	for _, s := range homeless {
		best := ""
		for _, id := range in.Receives {
			if left[id] > 0 && in.Instead(s, id) && (best == "" || id == last || left[id] > left[best] && best != last) {
				best = id // neighbors stay together
			}
		}
		if owners[s], last = best, best; best == "" {
			waits.Add(slot.Slot(s))
			continue
		}
		left[best]--
	}
	for _, s := range moves {
		if !take(owners[s]) {
			owners[s] = in.Owners[s]
		}
	}
	return owners, waits
}
