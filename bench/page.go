package bench

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed page.md
var pageText string

// Page returns docs/benchmarks.md. base is the name of the picture beside it, without .svg.
func (r *Report) Page(base string) ([]byte, error) {
	type part struct {
		*Series
		Command, Conditions string
		Tables              []string
	}
	var parts []part
	var ran []Strategy
	rounds, noted := 0, map[string]bool{}
	for _, s := range Strategies() {
		if slices.ContainsFunc(r.Series, func(series *Series) bool { return series.ran(s) }) {
			ran = append(ran, s)
		}
	}
	for _, series := range r.Series {
		p := part{Series: series, Command: series.command(), Conditions: series.conditions()}
		for _, sc := range scenarios {
			note := ""
			if !noted[sc.name] {
				note = sc.note + "\n\n"
			}
			if text := series.table(sc, note); text != "" {
				p.Tables, noted[sc.name] = append(p.Tables, text), true
			}
		}
		parts = append(parts, p)
		for _, s := range ran {
			for _, n := range series.replicas("") {
				rounds = max(rounds, len(series.of(s.Name, n, "start")))
			}
		}
	}
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Parts": parts, "Strategies": ran, "Rounds": rounds, "Base": base, "Bytes": websiteBytes,
	})
	return out.Bytes(), err
}

// count names some numbers of replicas.
func count(replicas ...int) string {
	if slices.Equal(replicas, []int{1}) {
		return "1 replica"
	}
	var out []string
	for _, n := range replicas {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ", ") + " replicas"
}

// command returns the arguments of `make bench` that measure it again.
func (r *Series) command() string {
	var replicas, strategies, measured []string
	for _, n := range r.replicas("") {
		replicas = append(replicas, strconv.Itoa(n))
	}
	for _, s := range Strategies() {
		if r.ran(s) {
			strategies = append(strategies, s.Name)
		}
	}
	for _, sc := range scenarios {
		if sc.name != "start" && len(r.replicas(sc.name)) > 0 {
			measured = append(measured, sc.name)
		}
	}
	p, window := r.Parameters, time.Duration(r.Parameters.WindowSeconds*float64(time.Second))
	return fmt.Sprintf("-objects %d -replicas %s -strategies %s -scenarios %s -rate %g -window %v", p.Objects,
		strings.Join(replicas, ","), strings.Join(strategies, ","), strings.Join(measured, ","), p.Rate, window)
}

// conditions are when and where it was measured: some results may be of other revisions than others.
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

// table returns a scenario's section; "" if it was not measured.
func (r *Series) table(sc scenario, note string) string {
	numbers := r.replicas(sc.name)
	if len(numbers) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "### %s: %s\n\n%s|  |", sc.title, count(numbers...), note)
	for _, name := range sc.figures {
		fmt.Fprintf(&out, " %s |", figures[name].title)
	}
	fmt.Fprintf(&out, "\n| --- |%s\n", strings.Repeat(" ---: |", len(sc.figures)))
	for _, s := range Strategies() {
		for _, n := range numbers {
			results := r.of(s.Name, n, sc.name)
			never := sc.never(s) && len(r.of(s.Name, n, "start")) > 0
			if len(results) == 0 && !never {
				continue
			}
			title := s.Title
			if len(numbers) > 1 {
				title += fmt.Sprint(" ×", n)
			}
			fmt.Fprintf(&out, "| %s |", title)
			for _, name := range sc.figures {
				text := "never"
				if !never {
					text = cell(name, results)
				}
				fmt.Fprintf(&out, " %s |", text)
			}
			fmt.Fprintln(&out)
		}
	}
	return out.String()
}

// cell is a figure's text. The longest wait is beside the changes that were never reconciled.
func cell(name string, results []*Result) string {
	text, missed := figures[name].text(results), 0
	for _, r := range results {
		missed += r.Missed
	}
	if missed > 0 && name == "wait-max" {
		text += fmt.Sprintf("; **%d never**", missed)
	}
	return text
}

// Write writes base.md, and the picture beside it.
func (r *Report) Write(base string) error {
	text, err := r.Page(filepath.Base(base))
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".md", text, 0o644); err != nil {
		return err
	}
	return r.draw(base + ".svg")
}
