package planner

import "testing"

// R19, R22: planners end orders that cannot stay.
func TestOrders(t *testing.T) {
	const (
		none   = "a, b | 0-1 a, 2-3 b"
		pause  = " | orders pause 1 -"
		canary = " | orders pause 1 -, canary v2 runs 25 0 0 0 - - 1 - | pins z pool=large 1 -"
		lost   = " | orders drain a a uid-a main 1 0 -, drain p p uid-p main 1 "
	)
	testStep(t, Joined, (*proposer).orders, []stepCase{
		{"there are none", given{old: 1}, none, ""},
		{"all members can read them", given{}, none + pause, ""},
		{"an older process wants to join", given{old: 3}, none + pause, " | orders"},
		{"R3: the second planner waits", given{old: 3, rank: 1, waited: secondWaits}, none + pause, " | orders"},
		{"R3: others do not", given{old: 3, rank: -1}, none + pause, ""},
		{"leavers do not", given{old: 3, phase: Leaving}, none + pause, ""},
		{"it reads them", given{old: 4}, none + pause, ""},
		{"it reads pauses only", given{old: 4}, none + canary, pause + " | pins"},
		{"it reads neither", given{old: 3}, none + canary, " | orders | pins"},
		{"a container may come back", given{}, none + lost + "9401 -", ""},
		{"after ten minutes it does not", given{}, none + lost + "9400 -", " | orders drain a a uid-a main 1 0 -"},
	})
}

// R22: write their labels while there are pins.
func TestLabel(t *testing.T) {
	const (
		none = "a, b | 0-1 a, 2-3 b"
		pins = none + " | pins z pool=large 1 -"
	)
	labels := func(v *View) { v.Self.Labels = "pool=large" }
	testStep(t, Joined, (*proposer).label, []stepCase{
		{"no pins", given{view: labels, waited: moment}, none, ""},
		{"a leaver", given{view: labels, waited: moment, phase: Leaving}, pins, ""},
		{"writes them after a moment", given{view: labels, waited: moment}, pins, " | a labels=pool=large, b"},
		{"they were written before", given{view: labels, waited: moment},
			"a labels=pool=large, b | 0-3 a | pins z pool=large 1 -", ""},
		{"this member does not know pins", given{waited: moment, view: func(v *View) {
			labels(v)
			v.Self.MaxFormat = 4
		}}, pins, ""},
	})
}
