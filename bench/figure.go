package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rota-dev/rota/bench/meter"
)

// figure is a number of a result: a column of tables, and what ranges bound.
type figure struct {
	title, format string
	// of returns it; NaN: it was not measured.
	of func(*Result) float64
}

// figures are all of them, by name.
var figures = map[string]figure{
	"took":       {"took, s", "%.1f", func(r *Result) float64 { return r.Took }},
	"wait-p50":   {"wait p50, ms", "%.0f", func(r *Result) float64 { return r.WaitP50 }},
	"wait-p99":   {"p99", "%.0f", func(r *Result) float64 { return r.WaitP99 }},
	"wait-max":   {"longest", "%.0f", func(r *Result) float64 { return r.WaitMax }},
	"writes":     {"writes beside reconciles", "%.0f", func(r *Result) float64 { return float64(r.Writes) }},
	"reconciles": {"reconciles", "%.0f", func(r *Result) float64 { return float64(r.Reconciles) }},
	"coordination": {"for table and Leases", "%.0f", func(r *Result) (n float64) {
		for what, count := range r.Requests {
			if of := meter.Resource(what); of == meter.Table || of == meter.Leases {
				n += float64(count)
			}
		}
		return n
	}},

	"heap":          {"heap at rest, MB", "%.0f", func(r *Result) float64 { return float64(r.LiveHeap) / 1e6 }},
	"greatest-heap": {"of the greatest", "%.0f", func(r *Result) float64 { return float64(r.Greatest) / 1e6 }},
	"peak-heap":     {"peaks, MB", "%.0f", func(r *Result) float64 { return float64(r.PeakHeap) / 1e6 }},

	"bytes":               {"received, MB", "%.1f", megabytes},
	"bytes-each":          {"received, kB", "%.1f", each(megabytes)},
	"bytes-rate":          {"received, kB per second", "%.1f", rate(megabytes)},
	"cpu-total":           {"CPU, s", "%.1f", cpu},
	"cpu":                 {"CPU, ms per change", "%.1f", each(cpu)},
	"cpu-rate":            {"CPU, ms per second", "%.1f", rate(cpu)},
	"apiserver-cpu-total": {"API server, s", "%.1f", apiServer},
	"apiserver-cpu":       {"API server", "%.1f", each(apiServer)},
	"apiserver-cpu-rate":  {"API server", "%.1f", rate(apiServer)},
	"etcd-cpu":            {"etcd", "%.1f", each(etcd)},
	"etcd-cpu-rate":       {"etcd", "%.1f", rate(etcd)},
}

func megabytes(r *Result) float64 { return float64(r.Bytes) / 1e6 }
func cpu(r *Result) float64       { return r.CPU }
func apiServer(r *Result) float64 { return r.APIServer }
func etcd(r *Result) float64      { return r.Etcd }

// each is a thousandth part of a figure for each change.
func each(of func(*Result) float64) func(*Result) float64 {
	return func(r *Result) float64 { return 1000 * of(r) / float64(max(1, r.Changes)) }
}

// rate is a thousandth part of a figure for each second.
func rate(of func(*Result) float64) func(*Result) float64 {
	return func(r *Result) float64 { return 1000 * of(r) / r.Seconds }
}

func figureOf(name string) (figure, error) {
	f, ok := figures[name]
	if !ok {
		all := slices.Sorted(maps.Keys(figures))
		return f, fmt.Errorf("figure %q: must be one of %s", name, strings.Join(all, ", "))
	}
	return f, nil
}

// over returns the least, the median and the greatest of a figure over the results of several rounds, of which there
// is at least one.
func (f figure) over(results []*Result) (least, median, greatest float64) {
	var values []float64
	for _, r := range results {
		values = append(values, f.of(r))
	}
	slices.Sort(values)
	n := len(values)
	return values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]
}

// text is the median, and the least and the greatest in brackets if they differ in what is printed; "" without results.
func (f figure) text(results []*Result) string {
	if len(results) == 0 {
		return ""
	}
	least, median, greatest := f.over(results)
	if math.IsNaN(median) {
		return ""
	}
	text := func(v float64) string { return fmt.Sprintf(f.format, v) }
	if text(least) == text(greatest) {
		return text(median)
	}
	return fmt.Sprintf("%s (%s–%s)", text(median), text(least), text(greatest))
}
