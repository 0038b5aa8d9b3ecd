package split

import (
	"fmt"
	"slices"
)

// spread is a value over the rounds.
type spread struct {
	median, least, most float64
}

// spreadOf is zero of no values.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{(v[(n-1)/2] + v[n/2]) / 2, v[0], v[n-1]}
}

// String is the median, and the range if it shows.
func (s spread) String() string {
	median, least, most := digits(s.median), digits(s.least), digits(s.most)
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s to %s)", median, least, most)
}

// digits formats a number with as many digits as matter here.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
