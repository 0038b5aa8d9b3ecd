package planner

import "testing"

// R18: a member announces its duties, and a planner suspends all.
func TestAnnounce(t *testing.T) {
	const (
		none   = "a, b | 0-3 b"
		one    = " | a able=4, b | duties scan 4 -"
		both   = "a able=4, b able=4 | 0-3 b | duties scan 4 "
		others = "a, b able=4 | 0-3 b | duties scan 4 b"
	)
	can := func(names string) func(*View) { return func(v *View) { v.Self.Duties = names } }
	size := func(names string, more int) func(*View) { // about 3/4 of MaxTable is taken
		return func(v *View) { v.Self.Duties, v.MaxTable = names, (v.Table.Size(0)+more)/3*4 }
	}
	tight := draft{leftOut: leftOut{noDuties: true}}
	testStep(t, Joined, (*proposer).announce, []stepCase{
		{"a leaver announces none", given{phase: Leaving, view: can("scan"), waited: moment}, none, ""},
		{"announces it after a moment", given{view: can("scan"), waited: moment, rank: -1}, none, one},
		{"this member reads just enough for it", given{view: can("scan"), waited: moment}, "a formats=1-3, b | 0-3 b",
			" | a formats=1-3 able=4, b | duties scan 4 -"},
		{"one more than it has", given{view: can("scan,x"), waited: moment}, both + "a",
			" | a able=4-5, b able=4 | duties scan 4 a, x 5 -"},
		{"announced it before", given{}, both + "-", ""},
		{"a member cannot read it", given{view: can("scan"), waited: moment}, "a, b formats=1-2 | 0-3 b", ""},
		{"this member cannot", given{view: func(v *View) { v.Self.Duties, v.Self.MaxFormat = "scan", 2 }, waited: moment},
			none, ""},
		{"suspended", given{view: can("scan"), waited: moment}, none + " | older 9401", ""},
		{"ten minutes are over", given{view: can("scan"), waited: moment}, none + " | older 9400", one},
		{"not while it has it", given{view: can(""), waited: moment}, both + "a -> b", ""},
		{"not while it gets it", given{view: can(""), waited: moment}, both + "b -> a", ""},
		{"takes it back, whatever hash slots it has", given{view: can(""), waited: moment},
			"a able=4, b able=4 | 0-3 a | duties scan 4 -", " | a, b able=4"},
		{"R4: nearly too large: no new one", given{view: size("scan,x", -1), draft: tight, waited: moment}, both + "-", ""},
		{"R4: not that large yet", given{view: size("scan,x", 2), draft: tight, waited: moment}, both + "-",
			" | a able=4-5, b able=4 | duties scan 4 -, x 5 -"},
		{"an older process wants to join", given{old: 2}, others, "now, DutiesSuspended | older 10000"},
		{"others than planners do not say so", given{old: 2, rank: -1}, others, ""},
		{"there were", given{old: 2}, none + " | older 9401", " | older 10000"},
		{"long ago", given{old: 2}, none + " | older 9400", ""},
		{"not again within a minute", given{old: 2}, others + " | older 9941", ""},
		{"again after a minute", given{old: 2}, others + " | older 9940", " | older 10000"},
		{"which ends those of this member at once", given{old: 2,
			view: func(v *View) { v.delays.announce = stepStart - moment }}, both + "b",
			"now, DutiesSuspended | a, b able=4 | older 10000"},
	})
}
