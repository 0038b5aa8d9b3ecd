package split

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/apiservers/split"
	"github.com/rota-dev/rota/test/judge"
)

// Report holds the measurements.
type Report struct {
	Options Options  `json:"options"`
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
}

// Machine is where they were made.
type Machine struct {
	Date       time.Time `json:"date"`
	CPUs       int       `json:"cpus"`
	CPU        string    `json:"cpu"`
	Kubernetes string    `json:"kubernetes"`
}

// Result is the result of one case in one round.
type Result struct {
	Scenario string `json:"scenario"`
	Form     Form   `json:"form"`
	Round    int    `json:"round"`
	// LoadAverage is that of the machine before, over one minute.
	LoadAverage string `json:"load_average"`
	// Quiet is without a flood, Flood with it.
	Quiet Window `json:"quiet"`
	Flood Window `json:"flood"`
}

// Window is a period of the load.
type Window struct {
	Seconds float64 `json:"seconds"`
	// Changes is the time from the request that creates or scales a Deployment until all of its Pods exist.
	Changes Latencies `json:"changes"`
	// Unfinished are changes whose Pods were missing 10 s after the window. Changes has the time until then.
	Unfinished int `json:"unfinished"`
	// Calls by name: get, list, create.
	Calls map[string]Latencies `json:"calls"`
	// Collected is how many objects of the flood are gone. CollectSeconds is when all were; 0: never.
	Collected      int     `json:"collected"`
	CollectSeconds float64 `json:"collect_seconds"`
	// Processes by name.
	Processes map[string]Process `json:"processes"`
}

// Latencies are in milliseconds.
type Latencies struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func latencies(list []time.Duration) Latencies {
	slices.Sort(list)
	at := func(q float64) float64 { return float64(judge.Quantile(list, q).Microseconds()) / 1000 }
	return Latencies{Count: len(list), P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// String is for the progress.
func (w Window) String() string {
	parts := []string{
		fmt.Sprintf("Deployments p50 %.0f p99 %.0f ms", w.Changes.P50, w.Changes.P99),
		fmt.Sprintf("get p99 %.0f ms", w.Calls["get"].P99),
	}
	if w.Unfinished > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d late", w.Unfinished, w.Changes.Count))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Processes)) {
		parts = append(parts, fmt.Sprintf("%s %.1f CPU s", name, w.Processes[name].CPUSeconds))
	}
	if w.Collected > 0 {
		parts = append(parts, fmt.Sprintf("%d collected in %.0f s", w.Collected, w.Seconds))
	}
	return strings.Join(parts, ", ")
}

// save writes the results and the tables.
func (r *Report) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.Options.Output+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(r.Options.Output+".md", []byte(r.Markdown()), 0o644)
}

func machine() Machine {
	return Machine{
		Date: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), CPU: cpuModel(), Kubernetes: split.Verified,
	}
}

// cpuModel is the name of the processors, "" where Linux does not say it.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere there is none
	_, rest, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(line, "\t :")
}

// loadAverage is that of the machine over one minute, "" where Linux does not say it.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // elsewhere there is none
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
