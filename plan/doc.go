// Package plan decides which member shall own which slot (rule R17, and R9's part about rollouts).
//
// Assign is a pure function of its Input: no clock, no randomness, no state between calls, and the order of the
// members does not matter. It works in three steps, each in a file of its own:
//
//   - quota.go: how many slots each member shall own. Fair shares are weighted max-min fair (water-filling between
//     the least and the most that each member may own), rounded by largest remainder (Hamilton's apportionment),
//     except that a member which holds the larger number already keeps it: of all roundings this moves the fewest
//     slots.
//   - release.go: which slots those above their number give up: whole runs and run edges, in clusters.
//   - place.go: who gets the slots given up, those of leavers and those that nobody owns: the neighbours first.
//
// Nothing beyond the counts of the first step ever moves: the second and third step choose only among the
// slots that must move in any case. What they choose keeps the runs of each member few, which keeps the table
// short and selectors cheap; it is a heuristic without a proven bound. TestRunsStayFew measures it.
//
// The package is not for tables with more than slot.MaxCount slots, and it knows nothing about load: a slot is a slot.
package plan
