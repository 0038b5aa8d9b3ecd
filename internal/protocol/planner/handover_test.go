package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Many members that got slots at the same time do not all say at the same time that they are active.
func TestR3CrowdsSettleOneAfterTheOther(t *testing.T) {
	delays := map[time.Duration]bool{}
	for i := range 300 {
		p := newProposer(View{
			Config: &Config{Self: table.Member{ID: fmt.Sprintf("m-%d", i)}, SettleDelay: 2 * time.Second},
			Table:  table.New(4096, slot.KeyName, 1),
		})
		for k := range 300 {
			p.Table.Put(table.Member{ID: fmt.Sprintf("m-%d", k), Weight: 1})
			if n := k + 1; n <= 100 && p.settleDelay() != p.SettleDelay {
				t.Fatalf("%d members: after %v, want %v", n, p.settleDelay(), p.SettleDelay)
			}
		}
		d := p.settleDelay()
		if d < p.SettleDelay || d >= 4*p.SettleDelay {
			t.Errorf("300 members: after %v, want from %v to four times that", d, p.SettleDelay)
		}
		delays[d.Truncate(100*time.Millisecond)] = true
	}
	if len(delays) < 50 {
		t.Errorf("300 members settle at %d different tenths of a second, of 60", len(delays))
	}
}

// R6, R8: a member reports slots that are warm.
func TestReady(t *testing.T) {
	const (
		coming = "a, b | 0-3 b -> a"
		half   = " | 0-1 b -> a ready, 2-3 b -> a"
	)
	testStep(t, Joined, (*proposer).ready, []stepCase{
		{"slots that are not coming", given{slots: "WWWW"}, "a, b, c | 0-1 b, 2-3 b -> c", ""},
		{"none is warm", given{slots: "ww.o"}, coming, ""},
		{"all are warm", given{slots: "WWWW"}, coming, " | 0-3 b -> a ready"},
		{"the rest is loading: waits a moment for it", given{slots: "WWww", waited: moment}, coming, half},
		{"it said so before", given{slots: "WWww"}, "a, b | 0-1 b -> a ready, 2-3 b -> a", ""},
	})
}

// R6, R15: an owner gives away what it has drained.
func TestTransfer(t *testing.T) {
	const (
		moving = "a, b | 0-3 a -> b"
		ready  = "a, b | 0-3 a -> b ready"
		given1 = " | 0 b 12 unsettled, 1-3 a -> b ready"
		handed = given1 + " | notes 12 handed Pod=7"
		stays  = " | 0-3 a"
		opens1 = " | 0 a, 1-3 a -> b ready"
		gives2 = " | 0 a -> b ready, 1 b 12 unsettled, 2-3 a -> b ready | notes 12 handed"
		opens2 = " | 0 a -> b ready, 1 a, 2-3 a -> b ready"
		late   = "a, b | 0-1 a 8 -> b ready unsettled, 2-3 b | notes 8 assigned | gone 0 Pod y, 1 Pod z"
		drain  = " | orders drain b b - - 1 0 -"
		duty   = "a able=4, b able=4 | 0-3 a | duties backup 4 a"
	)
	left := Slot{Cause: table.CauseHanded, Versions: table.Versions{"Pod": "7"}, Loaded: true}
	deletes := func(s slot.Slot, loaded bool) Slot {
		return Slot{Cause: table.CauseHanded, Loaded: loaded, Gone: []table.Gone{{Slot: s, Kind: "Pod", Name: "x"}}}
	}
	room := func(bytes int) func(*View) { return func(v *View) { v.MaxTable = 8 * bytes } }
	noGone := draft{leftOut: leftOut{noGone: true}}
	testStep(t, Joined, (*proposer).transfer, []stepCase{
		{"what is not moving", given{slots: "DDDD", slot: left}, "a, b | 0-3 a", ""},
		{"what others move", given{slots: "DDDD", slot: left}, "a, b, c | 0-3 b -> c ready", ""},
		{"the next owner is not ready", given{slots: "DDDD", slot: left}, moving, ""},
		{"it is not drained", given{slots: ".wod", slot: left}, ready, ""},
		{"it is drained", given{slots: "D", slot: left}, ready, handed},
		{"R13: sent before a lapse: it is sent again", given{slots: "S", slot: left}, ready, handed},
		{"another one drains: waits a moment for it", given{slots: "Dd", slot: left, waited: moment}, ready,
			handed},
		{"R4: without versions", given{slots: "D", slot: left, draft: draft{leftOut: leftOut{noVersions: true}}}, ready,
			" | notes 11 assigned | 0 b 11 unsettled, 1-3 a -> b ready"},
		{"R4: no transfer has room: it opens again", given{slots: "D", slot: left,
			draft: draft{leftOut: leftOut{noTransfers: true}}}, ready, opens1},
		{"an earlier step has changed the move", given{slots: "DDDD", slot: left, view: func(v *View) {
			v.Table = parseTable(t, "a, b, c | 0-3 a -> c ready")
		}}, "a, b, c | 0-3 a -> b ready", ""},
		{"R6: the next owner leaves", given{slots: ".odD", slot: left}, "a, b leaving | 0-3 a -> b ready", stays},
		{"R6: the next owner is silent", given{slots: "odDS", silent: "b"}, ready, " | 0 a -> b ready, 1-3 a"},
		{"R6: it was not seen yet", given{slots: "odDS", silent: "b", unseen: "b"}, ready, ""},
		{"R19: the next owner is drained: what is open stays", given{slots: ".odD", slot: left}, moving + drain,
			" | 0 a -> b, 1 a, 2-3 a -> b"},
		{"R19: a leaver still gives it that", given{slots: ".o", phase: Leaving, slot: left}, moving + drain, ""},
		{"R9: a leaver drains for nobody", given{slots: "odDS", phase: Leaving}, "a leaving, b | 0-3 a",
			"in 100ms | 0-1 a, 2-3 - 5"},
		{"R4: without owner it always has room", given{slots: "D", phase: Leaving,
			draft: draft{leftOut: leftOut{noTransfers: true}}}, "a leaving, b | 0-3 a", " | 0 - 5, 1-3 a"},
		{"R18: a duty is suspended", given{slots: "ooooD"}, duty + " | older 9401", " | duties backup 4 - 5"},
		{"R18: it is not any more", given{slots: "ooooD"}, duty + " | older 9400", ""},
		{"R18: a suspended duty does not move", given{slots: "ooooD"}, duty + " -> b ready | older 9401",
			" | duties backup 4 a"},
		{"R15: hands on the last owner's deletions", given{slots: "DD", slot: deletes(1, false)}, late,
			" | 0-1 b 12 unsettled, 2-3 b | notes 12 handed | gone 0 Pod y, 1 Pod x z"},
		{"R15: but not if it has loaded the slot", given{slots: "DD", slot: left}, late,
			" | 0-1 b 12 unsettled, 2-3 b | notes 12 handed Pod=7 | gone"},
		{"R15: they just fit", given{slots: ".D", slot: deletes(1, true), view: room(12)}, ready, gives2 + " | gone 1 Pod x"},
		{"R15: they just do not fit: it opens again", given{slots: ".D", slot: deletes(1, true), view: room(11)}, ready,
			opens2},
		{"R15: not beside others'", given{slots: "..D", slot: deletes(2, true), view: room(23)},
			"a, b | 0-1 b 9 unsettled, 2-3 a -> b ready | notes 9 handed | gone 1 Pod y",
			" | 0-1 b 9 unsettled, 2 a, 3 a -> b ready"},
		{"R15: one of two fits", given{slots: "DD", slot: deletes(1, true), view: room(23)}, ready,
			" | 0 b 12 unsettled, 1 a, 2-3 a -> b ready | notes 12 handed"},
		{"R15: a leaver's slot waits", given{slots: ".D", phase: Leaving, slot: deletes(1, true), view: room(11)}, ready, ""},
		{"R15: a member cannot read them", given{slots: ".D", slot: deletes(1, true)}, "a, b formats=1-1 | 0-3 a -> b ready",
			opens2},
		{"R4: they are left out: it opens again", given{slots: ".D", slot: deletes(1, true), draft: noGone}, ready, opens2},
		{"R4: a leaver drops them", given{slots: ".D", phase: Leaving, slot: deletes(1, true), draft: noGone}, ready, gives2},
	})
}

// R3, R8: an owner reports slots that are active.
func TestSettle(t *testing.T) {
	const (
		before = "a, b | 0-1 a unsettled, 2-3 b unsettled | notes 5 assigned"
		after  = " | 0-1 a, 2-3 b unsettled"
	)
	open := Slot{Epoch: 5}
	given0 := draft{transfers: slot.SetOf(slot.Range{Last: 0})}
	testStep(t, Joined, (*proposer).settle, []stepCase{
		{"nothing is unsettled", given{slots: "oooo", slot: open}, "a, b | 0-1 a, 2-3 b", ""},
		{"nothing is open", given{slots: "wWdD", slot: open}, before, ""},
		{"R12: what is open is of an earlier epoch", given{slots: "oo", slot: Slot{Epoch: 4}}, before, ""},
		{"reports what is open, after SettleDelay", given{slots: "oooo", slot: open, waited: time.Second}, before, after},
		{"reports nothing else", given{slots: ".o", slot: open, waited: time.Second}, before,
			" | 0 a unsettled, 1 a, 2-3 b unsettled"},
		{"not what this change gives away", given{slots: "oo", slot: open, draft: given0, waited: time.Second}, before,
			" | 0 a unsettled, 1 a, 2-3 b unsettled"},
	})
}
