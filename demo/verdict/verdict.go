// Package verdict says in words what a demo showed.
package verdict

import (
	"fmt"
	"io"
	"time"

	"github.com/rota-dev/rota/test/rig/judge"
)

// Verdict is one thing that was judged: what to say if it is good, and if it is not.
type Verdict struct {
	Good bool   `json:"good"`
	Yes  string `json:"yes"`
	No   string `json:"no"`
}

// Of is a verdict.
func Of(good bool, yes, no string) Verdict { return Verdict{good, yes, no} }

// Failures lists what must not have happened.
func Failures(all []Verdict) []string {
	var out []string
	for _, v := range all {
		if !v.Good {
			out = append(out, v.No)
		}
	}
	return out
}

// Write writes a line for each verdict, for people.
func Write(w io.Writer, all []Verdict) {
	for _, v := range all {
		if v.Good {
			_, _ = fmt.Fprintf(w, "  ok    %s\n", v.Yes)
		} else {
			_, _ = fmt.Fprintf(w, "  FAIL  %s\n", v.No)
		}
	}
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Spread says how long something took, in milliseconds.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// SpreadOf is the spread of sorted durations, by nearest rank; zeros of none.
func SpreadOf(sorted []time.Duration) Spread {
	at := func(q float64) float64 { return Millis(judge.Quantile(sorted, q)) }
	return Spread{at(0.5), at(0.99), at(1)}
}

// Millis is a duration in milliseconds, to the hundredth.
func Millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// Text is a duration in milliseconds as people read it.
func Text(ms float64) string {
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10 || ms == 0:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}
