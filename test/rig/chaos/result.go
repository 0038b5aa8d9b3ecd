package chaos

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/test/rig/judge"
)

// Result is what one run showed. Number counts from 1.
type Result struct {
	Number  int            `json:"run"`
	Fault   string         `json:"fault"`
	Seed    uint64         `json:"seed"`
	Fence   bool           `json:"fence"`
	Seconds float64        `json:"seconds"`
	Verdict *judge.Verdict `json:"verdict,omitempty"`
	// Error says why the run could not be judged.
	Error string `json:"error,omitempty"`
}

// Failures says in words what is wrong.
func (r Result) Failures() []string {
	if r.Error != "" || r.Verdict == nil {
		return []string{"not judged: " + r.Error}
	}
	f := find(r.Fault)
	return r.Verdict.Failures(!r.Fence && f.Late || f.Limit)
}

// String is a line for people.
func (r Result) String() string {
	line := fmt.Sprintf("%3d  %-24s %5.1f s  seed %-6d", r.Number, r.Fault, r.Seconds, r.Seed)
	if v := r.Verdict; v != nil {
		line += fmt.Sprintf("  %5d operations, %d late writes (%d between), %d refused, %d overlaps (%d paused), "+
			"slowest %.1f s; duties: %d late writes (%d between), %d refused, %d overlaps (%d paused), longest gap %.1f s",
			v.Operations, v.LateWrites, v.LateWritesBetween, v.Refused, v.Overlaps, v.PausedOverlaps,
			v.SlowestMillis/1000, v.Duties.LateWrites, v.Duties.LateWritesBetween, v.Duties.Refused, v.Duties.Overlaps,
			v.Duties.PausedOverlaps, v.Duties.LongestGapMillis/1000)
	}
	lines := []string{line}
	if bad := r.Failures(); len(bad) > 0 {
		lines[0] += "  FAIL: " + strings.Join(bad, "; ")
		if r.Verdict != nil {
			lines = append(append(lines, r.Verdict.Leaks...), r.Verdict.Examples...)
		}
	}
	return strings.Join(lines, "\n    ")
}
