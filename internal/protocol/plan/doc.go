// Package plan decides which member should own which slot (rule R17, and R9's part about rollouts).
//
// Assign is a pure function of its Input: no clock, no randomness, no state between calls, and the order of the members
// does not matter. It works in three steps, each in its own file:
//
//   - quota.go: how many slots each member should own. Fair shares are weighted max-min fair (water-filling between the
//     least and the most that each member may own). They are rounded by largest remainder (Hamilton's apportionment),
//     but a member that already holds the larger number keeps it. Of all roundings this moves the fewest slots.
//   - release.go: which slots the members above their number give up: whole runs and run edges, in clusters.
//   - place.go: which members get these slots, the leavers' slots and those without an owner: neighbors first.
//
// The first step decides how many slots move. The other two choose which ones, so that each member has few runs, which
// keeps the table short and selectors cheap. They are a heuristic without a proven bound. TestRunsStayFew measures it.
//
// Assign treats all slots as equal. AssignByLoad (load.go) takes their loads into account (rule R21).
//
// The package supports at most slot.MaxCount slots.
package plan
