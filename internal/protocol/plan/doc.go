// Package plan decides which member should own which slot (rule R17, and R9's part about rollouts).
//
// Assign is a pure function of its Input: no clock, no randomness, no state between calls, and the order of the members
// does not matter. It works in three steps, each in a file of its own:
//
//   - quota.go: how many slots each member should own. Fair shares are weighted max-min fair (water-filling between the
//     least and the most that each member may own). They are rounded by largest remainder (Hamilton's apportionment),
//     but a member that already holds the larger number keeps it. Of all roundings this moves the fewest slots.
//   - release.go: which slots the members above their number give up: whole runs and run edges, in clusters.
//   - place.go: who gets these slots, those of leavers and those without owner: the neighbors first.
//
// The first step decides how many slots move. The other two choose which ones. Their choice keeps the runs of each
// member few, which keeps the table short and selectors cheap. It is a heuristic without a proven bound.
// TestRunsStayFew measures it.
//
// To Assign all slots are equal. AssignByLoad (load.go) is for slots that are not (rule R21).
//
// The package is not for tables with more than slot.MaxCount slots.
package plan
