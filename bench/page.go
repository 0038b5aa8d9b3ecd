package bench

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/rota-dev/rota/bench/meter"
)

//go:embed page.md
var pageText string

// column is one of a table. A figure that is not a number was not measured.
type column struct {
	title, format string
	of            func(*Result) float64
}

// longest is the title of the column that tells of missed changes, too.
const longest = "longest"

// The columns of each scenario.
var (
	took = column{"took, s", "%.1f", func(r *Result) float64 { return r.Took }}
	p50  = column{"wait p50, ms", "%.0f", func(r *Result) float64 { return r.WaitP50 }}
	p99  = column{"p99", "%.0f", func(r *Result) float64 { return r.WaitP99 }}
	most = column{longest, "%.0f", func(r *Result) float64 { return r.WaitMax }}

	writes      = column{"writes beside reconciles", "%.0f", func(r *Result) float64 { return float64(r.Writes) }}
	reconciles  = column{"reconciles", "%.0f", func(r *Result) float64 { return float64(r.Reconciles) }}
	received    = column{"received, MB", "%.1f", func(r *Result) float64 { return float64(r.Bytes) / 1e6 }}
	cpu         = column{"processor, s", "%.1f", func(r *Result) float64 { return r.CPU }}
	server      = column{"API server, s", "%.1f", func(r *Result) float64 { return r.APIServer }}
	heap        = column{"heap at rest, MB", "%.0f", func(r *Result) float64 { return float64(r.LiveHeap) / 1e6 }}
	greatest    = column{"of the greatest", "%.0f", func(r *Result) float64 { return float64(r.Greatest) / 1e6 }}
	peak        = column{"peaks, MB", "%.0f", func(r *Result) float64 { return float64(r.PeakHeap) / 1e6 }}
	watches     = column{"watches", "%.0f", func(r *Result) float64 { return float64(r.Watches) }}
	writtenEach = column{"writes per object", "%.1f", perChange(func(r *Result) float64 { return float64(r.Written) })}
	cpuEach     = column{"processor, ms per change", "%.1f", perChange(func(r *Result) float64 { return r.CPU * 1000 })}
	serverEach  = column{"API server", "%.1f", perChange(func(r *Result) float64 { return r.APIServer * 1000 })}
	etcdEach    = column{"etcd", "%.1f", perChange(func(r *Result) float64 { return r.Etcd * 1000 })}
	bytesEach   = column{"received, kB", "%.1f", perChange(func(r *Result) float64 { return float64(r.Bytes) / 1e3 })}
	lists       = column{"pages listed", "%.0f", func(r *Result) float64 { return float64(r.Listed) }}
	coordinated = column{"for table and Leases", "%.0f", func(r *Result) float64 {
		return float64(r.requests("", meter.Table) + r.requests("", meter.Leases))
	}}
	serverHeap = column{"API server's heap, MB", "%.0f", func(r *Result) float64 {
		if r.ServerHeap == 0 {
			return math.NaN()
		}
		return float64(r.ServerHeap) / 1e6
	}}
	cpuRate    = column{"processor, ms per second", "%.1f", perSecond(func(r *Result) float64 { return r.CPU * 1000 })}
	serverRate = column{"API server", "%.1f", perSecond(func(r *Result) float64 { return r.APIServer * 1000 })}
	etcdRate   = column{"etcd", "%.1f", perSecond(func(r *Result) float64 { return r.Etcd * 1000 })}
	bytesRate  = column{"received, kB per second", "%.1f",
		perSecond(func(r *Result) float64 { return float64(r.Bytes) / 1e3 })}
)

func perSecond(of func(*Result) float64) func(*Result) float64 {
	return func(r *Result) float64 { return of(r) / r.Seconds }
}

var columns = map[string][]column{
	"start":    {took, writes, received, cpu, server, heap, greatest, peak, serverHeap, watches},
	"rest":     {cpuRate, serverRate, etcdRate, bytesRate},
	"create":   {p50, p99, most, writtenEach, cpuEach, serverEach, etcdEach, peak},
	"churn":    {p50, p99, most, cpuEach, serverEach, etcdEach, bytesEach, peak},
	"flood":    {p50, p99, most, reconciles, cpu, server},
	"join":     {took, p50, p99, most, writes, lists, coordinated, reconciles, received, cpu},
	"leave":    {took, p50, p99, most, writes, lists, coordinated, reconciles, received, cpu},
	"roll":     {took, p50, p99, most, writes, reconciles, received, cpu},
	"restart":  {took, p50, p99, most, reconciles},
	"outage":   {took, p50, p99, most, reconciles, received, cpu, server},
	"recreate": {took, p50, p99, most, reconciles, received, cpu, server},
	"crash":    {took, p50, p99, most, writes, reconciles},
}

// capacityOf is a column of capacity with some replicas.
func capacityOf(replicas int) column {
	return column{"changes/s, " + count([]int{replicas}), "%.1f",
		func(r *Result) float64 { return r.Capacity }}
}

// Page returns docs/benchmarks.md. base is the name of the picture beside it, without .svg, and of further pictures the
// beginning.
func (r *Report) Page(base string) ([]byte, error) {
	type table struct{ Title, Note, Text string }
	type part struct {
		*Series
		About, Conditions string
		Costs             string // the picture; "": there is none
		Tables            []table
	}
	var parts []part
	var ran []Strategy
	rounds := 0
	for _, s := range Strategies() {
		if slices.ContainsFunc(r.Series, func(series *Series) bool { return series.ran(s) }) {
			ran = append(ran, s)
		}
	}
	for _, series := range r.Series {
		w, err := ParseWorkload(series.Parameters.Workload)
		if err != nil {
			return nil, err
		}
		p := part{Series: series, About: w.About, Conditions: series.conditions(), Costs: series.costs(base)}
		capacities := series.capacities(ran)
		if capacities != "" {
			sc := scenarios()[len(scenarios())-1]
			p.Tables = append(p.Tables, table{sc.title, sc.note, capacities})
		} else {
			p.About += fmt.Sprintf(" %v main objects per second are changed.", series.Parameters.Rate)
		}
		numbers := series.replicas()
		for _, sc := range scenarios() {
			if capacities != "" && sc.name == "start" {
				continue // the search begins when all work
			}
			of := slices.DeleteFunc(slices.Clone(numbers), func(n int) bool { return !series.measured(n, sc.name) })
			title := fmt.Sprintf("%s: %s, %d objects", sc.title, count(of), series.Parameters.Objects)
			if text := series.table(ran, of, sc); text != "" {
				p.Tables = append(p.Tables, table{title, sc.note, text})
			}
		}
		for _, n := range numbers {
			for _, s := range ran {
				rounds = max(rounds, len(series.of(s.Name, n, "start")))
			}
		}
		parts = append(parts, p)
	}
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Parts": parts, "Strategies": ran, "Rounds": rounds, "Base": base})
	return out.Bytes(), err
}

// count names some numbers of replicas.
func count(replicas []int) string {
	var out []string
	for _, n := range replicas {
		out = append(out, strconv.Itoa(n))
	}
	if slices.Equal(replicas, []int{1}) {
		return "1 replica"
	}
	return strings.Join(out, ", ") + " replicas"
}

// conditions say when and where it was measured: some results may be of other revisions than others.
func (r *Series) conditions() string {
	m := r.Machine
	var of []string
	for i := range r.Results {
		if revision := r.Results[i].Revision; !slices.Contains(of, revision) {
			of = append(of, revision)
		}
	}
	return fmt.Sprintf("%s, revision %s, %s %s, %d CPUs (%s), %.0f GiB, Kubernetes %s, %s", r.Date.Format(time.DateOnly),
		strings.Join(of, " and "), m.Go, m.System, m.CPUs, m.CPU, float64(m.Memory)/(1<<30), m.Kubernetes, m.Libraries)
}

// ran says whether there are results of a strategy.
func (r *Series) ran(s Strategy) bool {
	return slices.ContainsFunc(r.Results, func(res Result) bool { return res.Strategy == s.Name })
}

// replicas are the numbers that there are results of.
func (r *Series) replicas() (out []int) {
	for i := range r.Results {
		out = append(out, r.Results[i].Replicas)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// measured says whether there are results of a scenario with some replicas.
func (r *Series) measured(replicas int, scenario string) bool {
	return slices.ContainsFunc(r.Results, func(res Result) bool {
		return res.Replicas == replicas && res.Scenario == scenario
	})
}

// rowTitle is that of a strategy with a number of replicas, one of some.
func rowTitle(s Strategy, n int, numbers []int) string {
	if len(numbers) == 1 {
		return s.Title
	}
	return s.Title + "; " + count([]int{n})
}

// table returns the rows of a scenario with some numbers of replicas; "": there are none.
func (r *Series) table(strategies []Strategy, numbers []int, sc scenario) string {
	t := tableOf(columns[sc.name])
	for _, s := range strategies {
		for _, n := range numbers {
			title := rowTitle(s, n, numbers)
			results := r.of(s.Name, n, sc.name)
			switch {
			case len(results) > 0:
				t.row(title, func(_ int, c column) string { return textOf(c, results) })
			case sc.never != nil && sc.never(s) && len(r.of(s.Name, n, "start")) > 0 && t.rows > 0:
				t.row(title, func(int, column) string { return "never" })
			}
		}
	}
	return t.text()
}

// capacities returns the capacity of each strategy with each number of replicas; "": there are none.
func (r *Series) capacities(strategies []Strategy) string {
	var columns []column
	var numbers []int
	for _, n := range r.replicas() {
		if slices.ContainsFunc(strategies, func(s Strategy) bool { return len(r.of(s.Name, n, "capacity")) > 0 }) {
			numbers, columns = append(numbers, n), append(columns, capacityOf(n))
		}
	}
	if len(numbers) == 0 {
		return ""
	}
	ratio := column{title: fmt.Sprintf("ratio of %d to %d", numbers[len(numbers)-1], numbers[0])}
	t := tableOf(append(columns, ratio))
	for _, s := range strategies {
		of := func(i int) []*Result { return r.of(s.Name, numbers[i], "capacity") }
		first, some := over(of(0), capacityOf(0).of)
		last, all := over(of(len(numbers)-1), capacityOf(0).of)
		if !some && !all {
			continue
		}
		t.row(s.Title, func(i int, c column) string {
			switch {
			case i < len(numbers):
				return textOf(c, of(i))
			case some && all:
				return fmt.Sprintf("%.2f", last.Median/first.Median)
			default:
				return ""
			}
		})
	}
	return t.text()
}

// textOf is the cell of a column; "": there are no results.
func textOf(c column, results []*Result) string {
	figure, ok := over(results, c.of)
	if !ok || math.IsNaN(figure.Median) {
		return ""
	}
	missed := 0
	for _, r := range results {
		missed += r.Missed
	}
	if missed > 0 && c.title == longest {
		return fmt.Sprintf("%s; **%d never**", figure.text(c.format), missed)
	}
	return figure.text(c.format)
}

// rows is a table in Markdown.
type rows struct {
	columns []column
	out     bytes.Buffer
	rows    int // below the head
}

func tableOf(columns []column) *rows {
	t := &rows{columns: columns}
	t.line("", func(_ int, c column) string { return c.title })
	t.line("---", func(int, column) string { return "---:" })
	return t
}

func (t *rows) line(first string, cell func(int, column) string) {
	fmt.Fprintf(&t.out, "| %s |", first)
	for i, c := range t.columns {
		fmt.Fprintf(&t.out, " %s |", cell(i, c))
	}
	fmt.Fprintln(&t.out)
}

func (t *rows) row(first string, cell func(int, column) string) {
	t.rows++
	t.line(first, cell)
}

// text is the table; "": it has no rows, or no columns.
func (t *rows) text() string {
	if t.rows == 0 || len(t.columns) == 0 {
		return ""
	}
	return t.out.String()
}

// Write writes base.md, and the pictures beside it.
func (r *Report) Write(base string) error {
	text, err := r.Page(filepath.Base(base))
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".md", text, 0o644); err != nil {
		return err
	}
	for _, series := range r.Series {
		if path := series.costs(base); path != "" {
			if err := series.drawCosts(path); err != nil {
				return err
			}
		}
	}
	return r.Draw(base + ".svg")
}
