package etcd

import (
	"fmt"
	"slices"
	"strings"
)

// Latency are the quantiles of N requests, in milliseconds.
type Latency struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func (l Latency) String() string { return fmt.Sprintf("p50 %.1f ms p99 %.1f ms", l.P50, l.P99) }

// Measured is what one case showed on one control plane. Renew and Event are those of Leases and Events.
type Measured struct {
	Create Latency `json:"create"`
	Update Latency `json:"update"`
	Renew  Latency `json:"renew"`
	Event  Latency `json:"event"`
}

// Pair is a case of a round, on both control planes.
type Pair struct {
	Round         int      `json:"round"`
	PeriodSeconds float64  `json:"period_seconds"`
	One           Measured `json:"one_etcd"`
	Three         Measured `json:"three_etcds"`
}

// Report is what Run measured.
type Report struct {
	Leases int     `json:"leases"`
	Rate   float64 `json:"rate"`
	Events float64 `json:"events"`
	Fsync  bool    `json:"fsync"`
	// Together says that both control planes were measured at the same time.
	Together bool    `json:"together"`
	Seconds  float64 `json:"seconds"`
	Pairs    []Pair  `json:"pairs"`
}

// rows are the lines of the table, with what each takes of a control plane's figures.
var rows = []struct {
	name string
	of   func(Measured) Latency
}{
	{"create a ConfigMap", func(m Measured) Latency { return m.Create }},
	{"update a ConfigMap", func(m Measured) Latency { return m.Update }},
	{"create an Event", func(m Measured) Latency { return m.Event }},
	{"renew a Lease", func(m Measured) Latency { return m.Renew }},
}

// Markdown returns a table: medians over the rounds, and the ratios of each round, from the lowest to the highest.
func (r *Report) Markdown() string {
	var b strings.Builder
	rounds, periods := 0, []float64{}
	for _, p := range r.Pairs {
		rounds = max(rounds, p.Round)
		if !slices.Contains(periods, p.PeriodSeconds) {
			periods = append(periods, p.PeriodSeconds)
		}
	}
	fmt.Fprintf(&b, "%d Leases; per second %v ConfigMaps created, %v updated, and %v Events created; rounds: %d, "+
		"of %v s, both at once: %t; etcd waits for the disk: %t.\n\n",
		r.Leases, r.Rate, r.Rate, r.Events, rounds, r.Seconds, r.Together, r.Fsync)
	b.WriteString("| renewals per second | request | p50, 1 etcd | 3 etcds | ratio | p99, 1 etcd | 3 etcds | ratio |\n")
	b.WriteString("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, period := range periods {
		renewals := "0"
		if period > 0 {
			renewals = fmt.Sprintf("%.0f", float64(r.Leases)/period)
		}
		for _, row := range rows {
			var one, three [2][]float64
			for _, p := range r.Pairs {
				a, c := row.of(p.One), row.of(p.Three)
				if p.PeriodSeconds != period || a.N == 0 || c.N == 0 {
					continue
				}
				one[0], one[1] = append(one[0], a.P50), append(one[1], a.P99)
				three[0], three[1] = append(three[0], c.P50), append(three[1], c.P99)
			}
			if len(one[0]) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |", renewals, row.name)
			for q := range one {
				fmt.Fprintf(&b, " %.1f ms | %.1f ms | %s |", median(one[q]), median(three[q]), ratios(three[q], one[q]))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// ratios returns the median of a/b, and its lowest and highest.
func ratios(a, b []float64) string {
	var out []float64
	for i := range a {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	if len(out) == 0 {
		return "?"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(out), slices.Min(out), slices.Max(out))
}

// median returns that of values, of which there is at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
