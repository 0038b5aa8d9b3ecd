package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
)

// R3, R7, R9, R17, R18, R19, R22: planners expel the dead, and give slots to members.
func TestPlan(t *testing.T) {
	const (
		ab     = " | 0-1 a, 2-3 b"
		even   = "a, b" + ab
		mixed  = "a, b, c build=v2 joined="
		free   = "a, b | 0-1 a, 2-3 - 5"
		taken  = " | 0-1 a, 2-3 b 11 unsettled | notes 11 assigned"
		dies   = "a, b, c | 0-1 a, 2-3 c"
		died   = " | a, b | 0-1 a, 2-3 b 13 unsettled | notes 13 expelled"
		lost   = " | expels c 10000"
		comes  = "a, b | 0-3 a"
		moves  = " | 0-1 a -> b, 2-3 a"
		pause  = " | orders pause 1 -"
		drain  = " | orders drain b b uid-b main 1 0 -"
		drain1 = " | orders drain b b - - 1 0 -"
		duty   = ab + " | duties scan 4 "
		canary = " | orders canary v2 runs 25 0 0 0 - - 1 -"
		back   = " | orders canary v2 back 25 0 1 0 - - 1 -"
		third  = " | 0 a -> c, 1 a, 2-3 b"
		other  = " | 0 a, 1 a -> b, 2-3 a"
		join   = 3 * time.Second
	)
	byLoad := func(v *View) { v.ByLoad = true }
	planned := func(v *View) { v.planning.planned, v.planning.planAgain = v.Version, v.Now+1 }
	comes50 := func(v *View) { v.planning.seen["b"] = stepStart + moment/2 - join }
	came := func(v *View) { v.planning.seen["b"] = stepStart + moment - join }
	only := func(out leftOut) draft { return draft{leftOut: out} }
	zero := slot.SetOf(slot.Range{})
	testStep(t, Joined, (*proposer).plan, []stepCase{
		{"all is well", given{}, even, ""},
		{"R3: only planners plan", given{rank: -1}, free, ""},
		{"leavers do not plan for others", given{phase: Leaving}, free, ""},
		{"slots without owner", given{}, free, taken},
		{"R1: it always renews in its own eyes", given{late: "a"}, "a, b | 0-1 b, 2-3 -",
			" | 0-1 b, 2-3 a 11 unsettled | notes 11 assigned"},
		{"R3: the second planner waits", given{rank: 1, waited: secondWaits}, free, taken},
		{"R3: with the table as it was", given{rank: 1, draft: draft{own: true}}, free, "in 250ms"},
		{"R3: it also evens out", given{rank: 1, waited: secondWaits}, "a, b, c" + ab, third},
		{"no plan for each change of a Lease", given{waited: moment, view: comes50}, comes, moves},
		{"but for each expel", given{expelled: "b", view: planned}, free,
			" | a | 0-1 a, 2-3 a 11 unsettled | notes 11 assigned | expels b 10000"},
		{"R7: a dead one whose Lease is still there", given{dead: "c"}, "a, b, c | 0 a, 1 b, 2-3 c", ""},
		{"R7: a dead one, whose long writes it waits for", given{expelled: "c", writes: time.Second}, dies, died +
			" wait=1000 | expels c 10000"},
		{"R9: 64 expels are kept", given{expelled: "c"}, dies + " | expels q 9900" + strings.Repeat(", p 9900", 63),
			died + " | expels" + strings.Repeat(" p 9900,", 63) + " c 10000"},
		{"R19: its drain waits for its container", given{expelled: "c"}, dies + " | orders drain c c uid-c main 1 0 -", died +
			" | expels c 10000 | orders drain c c uid-c main 1 10000 -"},
		{"R3: others that are late get nothing", given{expelled: "c", late: "b"}, dies,
			" | a, b | 0-1 a, 2-3 a 13 unsettled | notes 13 expelled | expels c 10000"},
		{"R17: what moves counts", given{}, "a, b, c | 0-1 a -> b, 2-3 a", " | 0-1 a -> b, 2 a -> c, 3 a"},
		{"R6: even to a late one", given{late: "b"}, "a, b, c | 0-1 a -> b, 2-3 c", " | 0-1 a -> b, 2 c -> a, 3 c"},
		{"R6: but not to a leaver", given{}, "a, b, c leaving | 0-1 a -> c, 2-3 b", ""},
		{"R17: a joiner waits for others", given{young: "b", waited: join}, comes, moves},
		{"R17: those that came later get theirs with it", given{young: "c", waited: moment, view: came}, "a, b, c | 0-3 a",
			" | 0 a -> b, 1 a -> c, 2-3 a"},
		{"R17: one that took over slots waits for the rest", given{young: "b", waited: join}, "a, b | 0-2 a, 3 b",
			" | 0-1 a, 2 a -> b, 3 b"},
		{"R17: it does not wait for slots without owner", given{young: "b"}, free, taken},
		{"R17: nor for those of dead ones", given{young: "b", expelled: "c"}, dies, died + lost},
		{"R9, R17: so do the first members, of whatever builds", given{young: "ab", waited: join}, "a, b build=v2 | 0-3 -",
			" | 0-1 a 11 unsettled, 2-3 b 11 unsettled | notes 11 assigned"},
		{"R9: a joiner of a new build waits longer", given{young: "b", waited: 10 * time.Second}, "a, b build=v2 | 0-3 a",
			moves},
		{"R9: in a rollout slots move once", given{}, mixed + "9401" + ab, ""},
		{"R9: after ten minutes it is none", given{}, mixed + "9400" + ab, third},
		{"R9: a join ahead of its time does not count", given{}, "a build=v2 joined=9401, b, c joined=10600" + ab, ""},
		{"R9: nor does one of the same build", given{}, "a, b, c joined=9401" + ab, third},
		{"R9: one that crashes in a loop gets nothing", given{}, "a, b joined=9701 | 0-3 a | expels b 9401, b 9900", ""},
		{"R9: one crash is none", given{}, "a, b joined=9701 | 0-3 a | expels b 9400, b 9900", moves},
		{"R9: it is up for long enough", given{}, "a, b joined=9700 | 0-3 a | expels b 9401, b 9900", moves},
		{"R9: a leaver plans for itself, and the others share the rest", given{}, "a, b leaving, c" + ab,
			" | 0 a -> c, 1 a, 2-3 b"},
		{"R3: nothing goes to a late one", given{late: "b"}, comes, ""},
		{"R3: unless all are late", given{late: "bc"}, "b, c | 0-3 b", " | 0-1 b -> c, 2-3 b"},
		{"R21: by load, the second planner does not even out", given{rank: 1, view: byLoad, waited: secondWaits}, comes, ""},
		{"R21: the first one does", given{view: byLoad}, comes, " | 0-1 a, 2-3 a -> b"},
		{"R19: paused: nothing moves", given{}, comes + pause, ""},
		{"R19: paused: slots without owner get one", given{}, free + pause, taken},
		{"R19: a drained one gives up its slots", given{}, even + drain, " | 0-1 a, 2-3 b -> a"},
		{"R19: and gets none", given{}, comes + drain, ""},
		{"R19: not while paused", given{}, even + pause + ", drain b b uid-b main 1 0 -", ""},
		{"R19: nobody else stays: it gets those without owner", given{}, "b, c leaving | 0-1 b, 2-3 -" + drain1,
			" | 0-1 b, 2-3 b 11 unsettled | notes 11 assigned"},
		{"R22: a pinned slot goes to a member with the labels", given{},
			"a, b labels=pool=large | 0-1 a, 2-3 b | pins z pool=large 1 -", " | 0 a -> b, 1 a, 2 b -> a, 3 b"},
		{"R22: a canary gets its slots only", given{}, "a, b build=v2 | 0-3 a" + canary, " | 0-2 a, 3 a -> b"},
		{"R22: one that goes back gives up all", given{}, "a, b build=v2 | 0-2 a, 3 b" + back, " | 0-2 a, 3 b -> a"},
		{"R18: a duty without owner waits, and begins as after an expel", given{waited: join}, "a able=4, b" + duty + "-",
			" | duties scan 4 a 13 unsettled | notes 13 expelled"},
		{"R18: a duty moves at once", given{}, "a able=4, b able=4" + duty + "b" + drain,
			" | 0-1 a, 2-3 b -> a | duties scan 4 b -> a"},
		{"R18: it stays with its owner", given{}, "a able=4, b" + duty + "a", ""},
		{"R18: nobody else can do a dead one's", given{expelled: "c"}, "a, b, c able=4 | 0-1 a, 2-3 b | duties scan 4 c",
			" | a, b | duties | expels c 10000"},
		{"R4: no moves have room", given{draft: only(leftOut{limited: true})}, comes, ""},
		{"R4: one has", given{draft: only(leftOut{limited: true, moves: 1})}, comes, " | 0 a -> b, 1-3 a"},
		{"R4: but slots without owner have", given{draft: only(leftOut{limited: true})}, free, taken},
		{"R6: not what this change gives away", given{draft: draft{transfers: zero}}, comes, other},
		{"R4: not what has to open again", given{draft: draft{stays: zero}}, comes, other},
		{"R6: not what was sent", given{slots: "S"}, comes, other},
	})
}
