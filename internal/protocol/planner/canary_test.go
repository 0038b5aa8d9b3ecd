package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
)

// R22: planners take a canary forward, or back, or end it. In a table of four slots, a quarter for build v2 is slot 3,
// and a half are slots 3 and 0.
func TestAdvance(t *testing.T) {
	const (
		has      = "a, b build=v2 | 0-2 a, 3 b"
		waits    = " | orders canary v2 runs 25,50,100 0 0 600 - - 1 -"
		began    = " | orders canary v2 runs 25,50,100 0 10000 600 - - 1 -"
		long     = " | orders canary v2 runs 25,50,100 0 9400 600 - - 1 -"
		short    = " | orders canary v2 runs 25,50,100 0 9401 600 - - 1 -"
		hand     = " | orders canary v2 runs 25,50,100 0 9400 0 - - 1 -"
		second   = " | orders canary v2 runs 25,50,100 1 0 600 - - 1 -"
		gone     = "a | 0-3 a"
		left     = " | orders canary v2 back 25,50,100 0 9400 600 - no%20member%20of%20its%20build%20is%20left 1 -"
		loop     = "a, b build=v2 joined=9701 | 0-2 a, 3 b"
		loops    = " | orders canary v2 back 25,50,100 0 9401 600 - its%20member%20b%20crashes%20in%20a%20loop 1 -"
		promoted = " | orders canary v2 promoted 25,50,100 1 9400 600 - - 1 -"
		back     = " | orders canary v2 back 25,50,100 1 9400 600 - bad 1 -"
		is2      = "a build=v2, b build=v2 | 0-3 a"
	)
	judged := func(of trial.Verdict, change func(*table.Canary)) func(*View) {
		return func(v *View) {
			v.canary.of, v.canary.verdict = v.Table.Canary, of
			if change != nil {
				change(&v.canary.of)
			}
		}
	}
	good, bad := judged(trial.Verdict{Good: true}, nil), judged(trial.Verdict{Bad: true, Text: "it  fails"}, nil)
	fails := strings.Replace(left, "no%20member%20of%20its%20build%20is%20left", "it%20fails", 1)
	testStep(t, Joined, (*proposer).advance, []stepCase{
		{"there is none", given{}, has, ""},
		{"leavers do nothing", given{phase: Leaving}, has + waits, ""},
		{"R3: nor do others than planners", given{rank: -1}, has + waits, ""},
		{"its members have its slots: the step begins", given{}, has + waits, began},
		{"R3: the second planner waits", given{rank: 1, waited: secondWaits}, has + waits, began},
		{"others own its slot", given{}, "a, b build=v2 | 0-2 b, 3 a" + waits, ""},
		{"its slot moves", given{}, "a, b build=v2 | 0-2 a, 3 b -> a" + waits, ""},
		{"its slot is not active", given{}, "a, b build=v2 | 0-2 a, 3 b unsettled | notes 5 assigned" + waits, ""},
		{"it is good, and lasted long enough", given{view: good}, has + long, second},
		{"it did not last long enough", given{view: good}, has + short, ""},
		{"it is neither good nor bad", given{view: judged(trial.Verdict{}, nil)}, has + long, ""},
		{"people begin each step", given{view: good}, has + hand, ""},
		{"moves are paused", given{view: good}, has + strings.Replace(long, "canary", "pause 1 -, canary", 1), ""},
		{"others own its slot again", given{view: good}, "a, b build=v2 | 0-2 b, 3 a" + long, ""},
		{"another step is good", given{view: judged(trial.Verdict{Good: true}, func(c *table.Canary) { c.Step = 1 })}, has +
			long, ""},
		{"the last step is good", given{view: good}, "a, b build=v2 | 0 b, 1-2 a, 3 b" + strings.Replace(long, "100 0",
			"100 1", 1), promoted},
		{"it is bad", given{view: bad}, has + short, strings.Replace(fails, "9400", "9401", 1)},
		{"its members are gone for a minute", given{waited: time.Minute}, gone + long, left},
		{"they are dead", given{waited: time.Minute, dead: "b"}, has + long, left},
		{"they leave", given{waited: time.Minute}, "a, b build=v2 leaving | 0-2 a, 3 b" + long, left},
		{"they have not come yet", given{waited: time.Minute}, gone + waits, ""},
		{"they are gone before the second step", given{waited: time.Minute}, gone + second, strings.Replace(left, "0 9400",
			"1 0", 1)},
		{"R9: one crashes in a loop", given{}, loop + short + " | expels b 9401, b 10000", loops},
		{"no others are left", given{waited: time.Hour}, is2 + short, ""},
		{"promoted: all are of its build", given{}, is2 + promoted, " | orders"},
		{"promoted: the last other one leaves", given{}, "a build=v2, b leaving | 0-3 a" + promoted, ""},
		{"promoted: nobody is there", given{dead: "a"}, "a build=v2 | 0-3 a" + promoted, "in 1m0s"},
		{"promoted: its members are gone for a minute", given{waited: time.Minute}, gone + promoted, " | orders"},
		{"back: there are others", given{waited: time.Hour}, has + back, ""},
		{"back: others are gone for ten minutes", given{waited: 10 * time.Minute}, is2 + back, " | orders"},
		{"back: all are gone", given{waited: time.Hour, dead: "a"}, "a build=v2 | 0-3 a" + back, ""},
	})
}
