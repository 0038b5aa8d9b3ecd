package split

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The servers among the processes. All others are kube-controller-managers.
const (
	apiServer = "apiserver"
	etcd      = "etcd"
)

// Markdown renders the tables: medians over the rounds, and ranges.
func (r *Report) Markdown() string {
	var b strings.Builder
	r.changes(&b)
	r.calls(&b)
	r.processes(&b)
	return b.String()
}

// row writes a row of a table.
func row(b *strings.Builder, cells ...any) {
	for _, c := range cells {
		_, _ = fmt.Fprintf(b, "| %v ", c)
	}
	b.WriteString("|\n")
}

// head writes the first rows of a table.
func head(b *strings.Builder, cells ...any) {
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	row(b, cells...)
	b.WriteString(strings.Repeat("| --- ", len(cells)) + "|\n")
}

// each calls do for each case with the results of its rounds.
func (r *Report) each(do func(c Case, rounds []Result)) {
	for _, s := range Scenarios() {
		for _, f := range s.Forms {
			if rounds := r.of(s.Name, f); len(rounds) > 0 {
				do(Case{s, f}, rounds)
			}
		}
	}
}

// of returns the results of a case, in the order of the rounds.
func (r *Report) of(scenario string, f Form) (out []Result) {
	for _, res := range r.Results {
		if res.Scenario == scenario && res.Form == f {
			out = append(out, res)
		}
	}
	return out
}

func over(rounds []Result, value func(Result) float64) spread {
	var values []float64
	for _, res := range rounds {
		values = append(values, value(res))
	}
	return spreadOf(values)
}

// changes is the table of what the bench is about.
func (r *Report) changes(b *strings.Builder) {
	head(b, "scenario", "runs as", "quiet p50", "quiet p99", "flood p50", "flood p99", "flood max", "p99 of one / this",
		"late", "collected per s", "all after s")
	r.each(func(c Case, rounds []Result) {
		late, changes := 0, 0
		for _, res := range rounds {
			late, changes = late+res.Flood.Unfinished, changes+res.Flood.Changes.Count
		}
		ratio := "1"
		if c.Form != One {
			ratio = spreadOf(r.better(c.Scenario.Name, c.Form)).String()
		}
		all := "-"
		if s := over(rounds, func(res Result) float64 { return res.Flood.CollectSeconds }); s.least > 0 {
			all = s.String()
		}
		row(b, c.Scenario.Name, c.Form,
			over(rounds, func(res Result) float64 { return res.Quiet.Changes.P50 }),
			over(rounds, func(res Result) float64 { return res.Quiet.Changes.P99 }),
			over(rounds, func(res Result) float64 { return res.Flood.Changes.P50 }),
			over(rounds, func(res Result) float64 { return res.Flood.Changes.P99 }),
			over(rounds, func(res Result) float64 { return res.Flood.Changes.Max }),
			ratio, fmt.Sprintf("%d of %d", late, changes),
			over(rounds, func(res Result) float64 { return res.Flood.pace() }), all)
	})
}

// pace is how many objects of the flood were collected per second.
func (w Window) pace() float64 {
	if w.CollectSeconds > 0 {
		return float64(w.Collected) / w.CollectSeconds
	}
	return float64(w.Collected) / w.Seconds
}

// better returns, for each round, the p99 under the flood of one kube-controller-manager divided by that of a form.
func (r *Report) better(scenario string, f Form) (out []float64) {
	for _, res := range r.of(scenario, f) {
		for _, one := range r.of(scenario, One) {
			if one.Round == res.Round && res.Flood.Changes.P99 > 0 {
				out = append(out, one.Flood.Changes.P99/res.Flood.Changes.P99)
			}
		}
	}
	return out
}

func (r *Report) calls(b *strings.Builder) {
	head(b, "scenario", "runs as", "flood", "get p50", "get p99", "list p50", "list p99", "create p50", "create p99")
	r.each(func(c Case, rounds []Result) {
		for _, flooded := range []bool{false, true} {
			window := func(res Result) Window { return res.Quiet }
			if flooded {
				window = func(res Result) Window { return res.Flood }
			}
			cells := []any{c.Scenario.Name, c.Form, map[bool]string{false: "no", true: "yes"}[flooded]}
			for _, call := range []string{"get", "list", "create"} {
				cells = append(cells,
					over(rounds, func(res Result) float64 { return window(res).Calls[call].P50 }),
					over(rounds, func(res Result) float64 { return window(res).Calls[call].P99 }))
			}
			row(b, cells...)
		}
	})
}

// processes is about the flood only.
func (r *Report) processes(b *strings.Builder) {
	head(b, "scenario", "runs as", "process", "CPUs", "MB", "requests per s", "throttled ms", "ready ms",
		"wait of Deployments ms", "of ReplicaSets ms", "of garbage ms", "of quotas ms", "quotas per s")
	r.each(func(c Case, rounds []Result) {
		for _, name := range slices.Sorted(maps.Keys(rounds[0].Flood.Processes)) {
			value := func(of func(Process, Window) float64) spread {
				return over(rounds, func(res Result) float64 { return of(res.Flood.Processes[name], res.Flood) })
			}
			cells := []any{c.Scenario.Name, c.Form, name,
				value(func(p Process, w Window) float64 { return p.CPUSeconds / w.Seconds }),
				value(func(p Process, _ Window) float64 { return p.Memory / 1e6 })}
			if name == apiServer || name == etcd {
				row(b, append(cells, "", "", "", "", "", "", "", "")...)
				continue
			}
			cells = append(cells, value(func(p Process, w Window) float64 { return p.Requests / w.Seconds }),
				value(func(p Process, _ Window) float64 { return p.Throttled / max(1, p.Requests) * 1000 }),
				value(func(p Process, _ Window) float64 { return p.Scheduling }))
			for _, q := range []string{"deployment", "replicaset", "attempt_to_delete", "resourcequota_primary"} {
				cells = append(cells, value(func(p Process, _ Window) float64 { return p.Queues[q].Wait }))
			}
			row(b, append(cells, value(func(p Process, w Window) float64 {
				return p.Queues["resourcequota_primary"].Items / w.Seconds
			}))...)
		}
	})
}
