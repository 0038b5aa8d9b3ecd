package bench

import (
	"fmt"
	"slices"
	"strings"
)

// figure is a number of a result.
type figure struct {
	name string
	of   func(*Result) float64
}

// figures are those that ranges may be about.
var figures = []figure{
	{"took", func(r *Result) float64 { return r.Took }},
	{"wait-p50", func(r *Result) float64 { return r.WaitP50 }},
	{"wait-p99", func(r *Result) float64 { return r.WaitP99 }},
	{"wait-max", func(r *Result) float64 { return r.WaitMax }},
	{"writes", func(r *Result) float64 { return float64(r.Writes) }},
	{"missed", func(r *Result) float64 { return float64(r.Missed) }},
	{"cpu", perChange(func(r *Result) float64 { return r.CPU * 1000 })},
	{"apiserver-cpu", perChange(func(r *Result) float64 { return r.APIServer * 1000 })},
	{"etcd-cpu", perChange(func(r *Result) float64 { return r.Etcd * 1000 })},
	{"heap", func(r *Result) float64 { return float64(r.LiveHeap) / 1e6 }},
	{"greatest-heap", func(r *Result) float64 { return float64(r.Greatest) / 1e6 }},
	{"peak-heap", func(r *Result) float64 { return float64(r.PeakHeap) / 1e6 }},
	{"apiserver-heap", func(r *Result) float64 { return float64(r.ServerHeap) / 1e6 }},
	{"bytes", func(r *Result) float64 { return float64(r.Bytes) / 1e6 }},
}

// perChange divides by the number of changes; without changes it does not.
func perChange(of func(*Result) float64) func(*Result) float64 {
	return func(r *Result) float64 { return of(r) / float64(max(1, r.Changes)) }
}

func figureOf(name string) (func(*Result) float64, error) {
	i := slices.IndexFunc(figures, func(f figure) bool { return f.name == name })
	if i >= 0 {
		return figures[i].of, nil
	}
	var all []string
	for _, f := range figures {
		all = append(all, f.name)
	}
	return nil, fmt.Errorf("figure %q: must be one of %s", name, strings.Join(all, ", "))
}
