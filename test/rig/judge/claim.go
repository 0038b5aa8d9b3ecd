package judge

import (
	"fmt"
	"io"
	"time"
)

// Claim is one thing that a story shows: what to say if it is good, and if it is not.
type Claim struct {
	Good bool   `json:"good"`
	Yes  string `json:"yes"`
	No   string `json:"no"`
}

// ClaimOf is a claim.
func ClaimOf(good bool, yes, no string) Claim { return Claim{good, yes, no} }

// Failures lists what must not have happened.
func Failures(all []Claim) []string {
	var out []string
	for _, v := range all {
		if !v.Good {
			out = append(out, v.No)
		}
	}
	return out
}

// WriteClaims writes a line for each claim, for people.
func WriteClaims(w io.Writer, all []Claim) {
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
	at := func(q float64) float64 { return millis(Quantile(sorted, q)) }
	return Spread{at(0.5), at(0.99), at(1)}
}

// Millis is a duration in milliseconds as people read it.
func Millis(ms float64) string {
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10 || ms == 0:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}
