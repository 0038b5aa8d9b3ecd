package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// lately answers that some members may still have long writes under way.
type lately struct {
	Local
	left map[string]time.Duration
}

func (l lately) WritesEnd(id string) time.Duration { return l.left[id] }

// R7: new owners wait for the rest of the expelled member's long writes, and for those that it was waiting for itself.
func TestR07ExpelsWaitForLongWrites(t *testing.T) {
	waits := &table.Table{
		Runs: []table.Run{
			{Slots: slot.Range{First: 0, Last: 3}, Owner: "a", Epoch: 5},
			{Slots: slot.Range{First: 4, Last: 7}, Owner: "b", Epoch: 7, Unsettled: true},
		},
		Notes: map[uint64]table.Note{7: {Cause: table.CauseExpelled, Wait: 9 * time.Second}},
	}
	for _, c := range []struct {
		name string
		dead []string
		left map[string]time.Duration
		want time.Duration
	}{
		{"nothing announced", []string{"a"}, nil, 0},
		{"the rest of what it announced", []string{"a"}, map[string]time.Duration{"a": 4 * time.Second}, 4 * time.Second},
		{"the longest of two", []string{"a", "c"}, map[string]time.Duration{"a": 4 * time.Second, "c": 6 * time.Second},
			6 * time.Second},
		{"what it was waiting for", []string{"b"}, map[string]time.Duration{"b": 4 * time.Second}, 9 * time.Second},
	} {
		p := newProposer(View{Table: waits, Local: lately{left: c.left}})
		if note := p.expelNote(c.dead); note.Wait != c.want || note.Cause != table.CauseExpelled {
			t.Errorf("%s: the note is %+v, want a wait of %v", c.name, note, c.want)
		}
	}
}

// R9, R18, R19, R22: how a member enters the table.
func TestJoin(t *testing.T) {
	const (
		alone  = "b | 0-3 b"
		joins  = " | a joined=10000, b"
		former = "b, p pod=a uid=uid-a | 0-1 b, 2-3 p"
		beside = " | a joined=10000, b, p pod=a uid=uid-a"
		takes  = " | a joined=10000, b | 0-1 b, 2-3 a 13 unsettled | notes 13 expelled"
		twin   = "b, n pod=a | 0-3 b"
		twins  = " | a joined=10000, b, n pod=a"
	)
	duties := func(v *View) { v.Self.Duties, v.Self.Labels = "backup", "pool=large" }
	testStep(t, Joining, (*proposer).join, []stepCase{
		{"only a joiner joins", given{phase: Joined}, alone, ""},
		{"R1: not before it has seen all Leases", given{view: func(v *View) { v.Complete = false }}, alone, "last"},
		{"it takes nothing", given{}, alone, "now, last" + joins},
		{"R18: no duties while they are suspended", given{view: duties}, alone + " | older 9401", "now, last" + joins},
		{"R18, R22: with its duties and labels", given{view: duties}, alone + " | pins z pool=large 1 -",
			"now, last | a joined=10000 able=4 labels=pool=large, b | duties backup 4 -"},
		{"R19: drained as its former ID", given{view: func(v *View) { v.Former = []string{"z"} }}, alone +
			" | orders drain z z uid-z main 9000 9500 -", "now, last" + joins + " | orders drain a a uid-a main 9000 0 -"},
		{"R9: first it deletes the Lease of its container's last process", given{}, former, "last"},
		{"R7, R9: then it takes its slots, and waits for its long writes", given{expelled: "p", writes: 4 * time.Second},
			former, "now, last" + takes + " wait=4000 | expels a 10000"},
		{"R18: but no duty that it cannot do", given{expelled: "p"},
			"b able=4, p able=4 pod=a uid=uid-a | 0-3 p | duties backup 4 p",
			"now, last | a joined=10000, b able=4 | 0-3 a 13 unsettled | duties backup 4 - 5 | notes 13 expelled | " +
				"expels a 10000"},
		{"R9: once in ten minutes", given{expelled: "p"}, former + " | expels a 9401", "now, last" + beside},
		{"R9: ten minutes are over", given{expelled: "p"}, former + " | expels b 9401, a 9400", "now, last" + takes +
			" | expels b 9401, a 10000"},
		{"R9: not where work outlives processes", given{view: func(v *View) { v.Outlives = true }}, former, "now, last" +
			beside},
		{"R9: another container of the Pod stays", given{}, strings.Replace(former, "=a ", "=a container=side ", 1),
			"now, last" + beside + " container=side"},
		{"R9: ends if its namesake is alive", given{}, twin, "last, ends for n"},
		{"R9: waits until it knows, and says so", given{quiet: "n"}, twin, "last, IdentityInUse"},
		{"R9: once", given{quiet: "n", waited: 1}, twin, "last"},
		{"R9: writes a version first if its join may still happen", given{
			view: func(v *View) { v.InDoubt = true }}, twin, "now, last"},
		{"R9: a dead namesake", given{dead: "n"}, twin, "now, last" + twins},
		{"R9: a namesake that leaves", given{}, "b, n pod=a leaving | 0-3 b",
			"now, last | a joined=10000, b, n pod=a leaving"},
		{"R9: a namesake's other container", given{}, "b, n pod=a container=side | 0-3 b",
			"now, last | a joined=10000, b, n pod=a container=side"},
		{"R9: a namesake that it was itself", given{view: func(v *View) { v.Former = []string{"n"} }}, twin, "now, last" +
			twins},
		{"R9: a namesake where neither has a POD_UID", given{view: func(v *View) { v.Self.PodUID = "" }},
			"b, n pod=a uid=- | 0-3 b", "last, ends for n"},
		{"R9: without names nobody is the same", given{view: func(v *View) { v.Self.Pod, v.Self.PodUID = "", "" }},
			"b, n pod=- uid=- | 0-3 b", "now, last | a pod=- uid=- joined=10000, b, n pod=- uid=-"},
	})
}

// R9, R19: how a member leaves the table.
func TestLeave(t *testing.T) {
	const (
		owns  = "a leaving, b, c | 0-3 a"
		all   = " | 0-3 a -> "
		half  = " | 0-1 a -> b, 2-3 a -> c"
		drain = " | orders drain b b - - 1 0 -"
		empty = "a leaving, b | 0-3 b"
	)
	testStep(t, Leaving, (*proposer).leave, []stepCase{
		{"only a leaver leaves", given{phase: Joined}, owns, ""},
		{"it is not named: writes a version that its join cannot follow", given{}, "b | 0-3 b", "now, last"},
		{"marks itself first", given{}, "a, b | 0-3 b", " | a leaving, b"},
		{"goes once it owns nothing", given{}, empty, "now, last | b"},
		{"R6: but not while a transfer may still happen", given{view: func(v *View) { v.Sending = true }}, empty, ""},
		{"plans only its own moves", given{}, "a leaving, b, c | 0-1 a, 2-3 -", " | 0 a -> b, 1 a -> c, 2-3 -"},
		{"nobody is left", given{}, "a leaving | 0-3 a", ""},
		{"evenly", given{}, owns, half},
		{"R3: not to a dead one", given{dead: "b"}, owns, all + "c"},
		{"to one that it does not watch yet", given{late: "b", unseen: "b"}, owns, half},
		{"R19: not to a drained one", given{}, owns + drain, all + "c"},
		{"R19: unless the others are dead", given{dead: "c"}, "a, b, c | 0-3 a" + drain, " | a leaving, b, c | 0-3 a -> b"},
		{"R19: or leaves", given{}, "a leaving, b, c leaving | 0-3 a | orders drain b b - - 1 0 -", all + "b"},
		{"what moves goes on moving", given{}, owns + all + "b", ""},
		{"but not if that is ready", given{late: "b"}, owns + all + "b ready", ""},
		{"nor once that was sent", given{late: "b", slots: "S.S."}, owns + all + "b",
			" | 0 a -> b, 1 a -> c, 2 a -> b, 3 a -> c"},
		{"R4: as many moves as there is room for", given{draft: draft{leftOut: leftOut{limited: true, moves: 3}}}, owns,
			" | 0-1 a -> b, 2 a -> c, 3 a"},
		{"R4: moves to nobody always have room", given{dead: "b", draft: draft{leftOut: leftOut{limited: true}}},
			"a leaving, b | 0-3 a -> b", " | 0-3 a"},
		{"R9: more to the new build in a rollout", given{}, "a leaving, b, c, d build=v2 joined=9401 | 0-3 a",
			" | 0-1 a -> d, 2 a -> b, 3 a -> c"},
	})
}
