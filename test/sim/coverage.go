package sim

import (
	"fmt"
	"io"
)

// Coverage says how often there was what the protocol is about.
type Coverage struct {
	// Rules counts, by number, the situations that each rule of docs/protocol.md is about; see Situations.
	Rules [rules + 1]int
	// Pairs counts how often a fault of the second kind began while one of the first lasted, or within a lease of its
	// end. The first row, FaultUnknown, counts the second kind alone.
	Pairs [Faults][Faults]int
}

// rules is the number of the last rule. R20 has worlds of its own (internal/protocol/election).
const rules = 22

// Situations say what Coverage.Rules counts.
var Situations = [rules + 1]string{
	1:  "Leases that were silent for a lease, as somebody saw it",
	2:  "deadlines that passed in a process that ran",
	3:  "swaps that met a conflict",
	4:  "members that were shown a table which they must not work with",
	5:  "keys of owned slots that the gate did not admit",
	6:  "slots handed over, and transfers taken back",
	7:  "members expelled",
	8:  "slots loaded by a new owner",
	9:  "members that left",
	10: "slots lost by members that go on",
	11: "keys of others' slots offered to the gate",
	12: "slots activated at a higher epoch than another owner's",
	13: "lapses that ended, and processes that joined again",
	14: "findings by comparing what members hold with the table and the objects, while faults last",
	15: "drains that waited for a deletion",
	16: "tables created, adopted or refused as old",
	17: "changes of the table that moved slots or gave them owners",
	18: "duties taken up by another member than the last one",
	19: "changes of the table by members while moves were paused or members drained",
	21: "answers with reports of loads",
	22: "changes of the table by members while there was a canary or a pin",
}

// Add adds what another world went through.
func (c *Coverage) Add(o *Coverage) {
	for i := range c.Rules {
		c.Rules[i] += o.Rules[i]
	}
	for i := range c.Pairs {
		for j := range c.Pairs[i] {
			c.Pairs[i][j] += o.Pairs[i][j]
		}
	}
}

// Missing names what never was: rules without their situation, and pairs of faults that never met.
func (c *Coverage) Missing() []string {
	var out []string
	for i, n := range c.Rules[1:] {
		if n == 0 && Situations[i+1] != "" {
			out = append(out, fmt.Sprintf("R%d: no %s", i+1, Situations[i+1]))
		}
	}
	for a := FaultPause; a < Faults; a++ {
		for b := FaultPause; b < Faults; b++ {
			if c.Pairs[a][b] == 0 && !apart(a, b) {
				out = append(out, fmt.Sprintf("%v, then %v", a, b))
			}
		}
	}
	return out
}

// apart says that one fault can hardly follow the other within a lease: once an old copy of the table was put over it
// and deleted, it takes a lease until there is a table again, and a moment more until there is an old copy of that.
func apart(a, b Fault) bool {
	return a == FaultOverwrite && (b == FaultOverwrite || b == FaultForeignTable)
}

// Print writes a table of the rules and the matrix of pairs.
func (c *Coverage) Print(w io.Writer) {
	for i, n := range c.Rules[1:] {
		if Situations[i+1] == "" {
			continue
		}
		_, _ = fmt.Fprintf(w, "R%-2d %12d  %s\n", i+1, n, Situations[i+1])
	}
	_, _ = fmt.Fprintf(w, "\nPairs of faults: the one on the left lasted, or ended within %v, when the one above began.\n"+
		"%-18s", near, "")
	for b := FaultPause; b < Faults; b++ {
		_, _ = fmt.Fprintf(w, "%7d", b)
	}
	_, _ = fmt.Fprintf(w, "\n%-18s", "   alone")
	for b := FaultPause; b < Faults; b++ {
		_, _ = fmt.Fprintf(w, "%7d", c.Pairs[FaultUnknown][b])
	}
	for a := FaultPause; a < Faults; a++ {
		_, _ = fmt.Fprintf(w, "\n%2d %-15v", a, a)
		for b := FaultPause; b < Faults; b++ {
			_, _ = fmt.Fprintf(w, "%7d", c.Pairs[a][b])
		}
	}
	_, _ = fmt.Fprintln(w)
}
