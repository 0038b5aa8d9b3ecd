package bench

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"os"
	"slices"
	"text/template"
	"time"
)

//go:embed page.md
var pageText string

// column is one of a table.
type column struct {
	title, format string
	of            func(*Result) float64
}

// The columns of each scenario.
var (
	took = column{"took, s", "%.1f", func(r *Result) float64 { return r.Took }}
	p50  = column{"wait p50, ms", "%.0f", func(r *Result) float64 { return r.WaitP50 }}
	p99  = column{"p99", "%.0f", func(r *Result) float64 { return r.WaitP99 }}
	most = column{"longest", "%.0f", func(r *Result) float64 { return r.WaitMax }}

	writes     = column{"writes beside reconciles", "%.0f", func(r *Result) float64 { return float64(r.Writes) }}
	reconciles = column{"reconciles", "%.0f", func(r *Result) float64 { return float64(r.Reconciles) }}
	received   = column{"received, MB", "%.1f", func(r *Result) float64 { return float64(r.Bytes) / 1e6 }}
	cpu        = column{"processor, s", "%.1f", func(r *Result) float64 { return r.CPU }}
	server     = column{"API server, s", "%.1f", func(r *Result) float64 { return r.APIServer }}
	heap       = column{"heap at rest, MB", "%.0f", func(r *Result) float64 { return float64(r.LiveHeap) / 1e6 }}
	greatest   = column{"of the greatest", "%.0f", func(r *Result) float64 { return float64(r.Greatest) / 1e6 }}
	peak       = column{"peaks, MB", "%.0f", func(r *Result) float64 { return float64(r.PeakHeap) / 1e6 }}
	watches    = column{"watches", "%.0f", func(r *Result) float64 { return float64(r.Watches) }}
	cpuEach    = column{"processor, ms per change", "%.1f", perChange(func(r *Result) float64 { return r.CPU * 1000 })}
	serverEach = column{"API server", "%.1f", perChange(func(r *Result) float64 { return r.APIServer * 1000 })}
	etcdEach   = column{"etcd", "%.1f", perChange(func(r *Result) float64 { return r.Etcd * 1000 })}
)

var columns = map[string][]column{
	"start":   {took, writes, received, cpu, server, heap, greatest, peak, watches},
	"churn":   {p50, p99, most, cpuEach, serverEach, etcdEach, peak},
	"join":    {took, p50, p99, most, writes, reconciles, received, cpu},
	"leave":   {took, p50, p99, most, writes, reconciles, received, cpu},
	"roll":    {took, p50, p99, most, writes, reconciles, received, cpu},
	"restart": {took, p50, p99, most, reconciles},
	"crash":   {took, p50, p99, most, writes, reconciles},
}

// Page returns docs/benchmarks.md.
func (r *Report) Page() ([]byte, error) {
	type table struct{ Name, Title, Text string }
	type part struct {
		Replicas int
		Tables   []table
	}
	var parts []part
	var ran []Strategy
	for _, s := range Strategies() {
		if slices.ContainsFunc(r.Results, func(res Result) bool { return res.Strategy == s.Name }) {
			ran = append(ran, s)
		}
	}
	rounds := 0
	for _, n := range r.replicas() {
		p := part{Replicas: n}
		for _, sc := range scenarios() {
			if text := r.table(ran, n, sc); text != "" {
				p.Tables = append(p.Tables, table{sc.name, sc.title, text})
			}
		}
		for _, s := range ran {
			rounds = max(rounds, len(r.of(s.Name, n, "start")))
		}
		parts = append(parts, p)
	}
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	m := r.Machine
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Report": r, "Parts": parts, "Strategies": ran, "Rounds": rounds, "Websites": r.Parameters.Objects / (1 + children),
		"Machine": fmt.Sprintf("%s, revision %s, %s %s, %d CPUs (%s), %.0f GiB, Kubernetes %s, %s",
			r.Date.Format(time.DateOnly), m.Revision, m.Go, m.System, m.CPUs, m.CPU, float64(m.Memory)/(1<<30), m.Kubernetes,
			m.Libraries),
	})
	return out.Bytes(), err
}

// replicas are the numbers that there are results of.
func (r *Report) replicas() (out []int) {
	for i := range r.Results {
		out = append(out, r.Results[i].Replicas)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// table returns the rows of a scenario; "": there are none.
func (r *Report) table(strategies []Strategy, replicas int, sc scenario) string {
	var out bytes.Buffer
	var rows int
	line := func(first string, cell func(column) string) {
		fmt.Fprintf(&out, "| %s |", first)
		for _, c := range columns[sc.name] {
			fmt.Fprintf(&out, " %s |", cell(c))
		}
		fmt.Fprintln(&out)
	}
	line("", func(c column) string { return c.title })
	line("---", func(column) string { return "---:" })
	for _, s := range strategies {
		results := r.of(s.Name, replicas, sc.name)
		switch {
		case len(results) > 0:
			rows++
			line(s.Title, func(c column) string {
				figure, _ := over(results, c.of)
				return figure.text(c.format)
			})
		case sc.never != nil && sc.never(s) && len(r.of(s.Name, replicas, "start")) > 0:
			line(s.Title, func(column) string { return "never" })
		}
	}
	if rows == 0 {
		return ""
	}
	return out.String()
}

// Write writes the page, and the picture beside it.
func (r *Report) Write(page, picture string) error {
	text, err := r.Page()
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, text, 0o644); err != nil {
		return err
	}
	return r.Draw(picture)
}
