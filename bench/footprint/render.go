package footprint

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/rota-dev/rota/bench/meter"
)

//go:embed memory.md.tmpl
var page string

// Markdown renders the page. Tables only have rows for measured cases.
func (r *Report) Markdown() ([]byte, error) {
	t, err := template.New("memory.md").Funcs(template.FuncMap{
		"mb": mb, "kb": kb, "pct": percent, "num": number[float64], "int": number[int],
		"seconds": func(s float64) string { return fmt.Sprintf("%.2f", s) },
		"milli":   func(s float64) string { return fmt.Sprintf("%.1f", s*1000) },
		"ms":      func(ms float64) string { return fmt.Sprintf("%.1f", ms) },
		"x":       func(f float64) string { return fmt.Sprintf("%.2f", f) },
	}).Parse(page)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, struct {
		Parameters
		Sizes       string
		Replicas    []replicaRow
		Joins       []joinRow
		Delays      []delayRow
		Conditions  []string
		Joined      int
		SampleEvery string
	}{
		r.Parameters, r.sizes(), r.replicaRows(), r.joinRows(), r.delayRows(), r.conditions(), joined,
		meter.SampleEvery.String(),
	})
	return out.Bytes(), err
}

// sizes lists the kinds with the mean sizes of their objects.
func (r *Report) sizes() string {
	var largest *Result
	for i := range r.Results {
		if res := &r.Results[i]; largest == nil || count(res.Objects) > count(largest.Objects) {
			largest = res
		}
	}
	if largest == nil {
		return "nothing was measured yet"
	}
	var words []string
	for _, kind := range slices.Backward(slices.Sorted(maps.Keys(largest.Objects))) { // websites first
		if n := largest.Objects[kind]; n > 0 {
			words = append(words, fmt.Sprintf("%s %s of %s bytes", number(n), kind, number(largest.Sizes[kind])))
		}
	}
	return strings.Join(words, ", ")
}

// conditions lists when, where and with which versions the results were made, once if all are alike.
func (r *Report) conditions() (out []string) {
	by := map[string][]string{}
	var order []string
	for _, res := range r.Results {
		m := res.Machine
		text := fmt.Sprintf("%s, revision %s, %s %s, %d CPUs (%s), %.0f GiB, Kubernetes %s, %s",
			res.Date.Format("2006-01-02"), m.Revision, m.Go, m.System, m.CPUs, m.CPU,
			float64(m.Memory)/(1<<30), m.Kubernetes, m.Libraries)
		if by[text] == nil {
			order = append(order, text)
		}
		by[text] = append(by[text], res.Case.String())
	}
	for _, text := range order {
		if len(order) > 1 {
			text += ": " + strings.Join(by[text], ", ")
		}
		out = append(out, text)
	}
	return out
}

func mb(bytes float64) string { return fmt.Sprintf("%.1f", bytes/1e6) }
func kb(bytes float64) string { return fmt.Sprintf("%.1f", bytes/1e3) }

// percent is the deviation from an expected value.
func percent(f float64) string { return fmt.Sprintf("%+.0f %%", f*100) }

// number formats a number with commas between thousands.
func number[N int | float64](n N) string {
	digits := fmt.Sprintf("%.0f", float64(n))
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
