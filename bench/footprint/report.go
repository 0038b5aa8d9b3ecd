package footprint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
)

// Report holds the measurements.
type Report struct {
	Parameters Parameters `json:"parameters"`
	Results    []Result   `json:"results"`
}

// Parameters are shared by all runs of a report.
type Parameters struct {
	Objects       int     `json:"objects"`
	JoinObjects   int     `json:"join_objects"`
	WebsiteBytes  int     `json:"website_bytes"`
	Rate          float64 `json:"rate"`
	WindowSeconds float64 `json:"window_seconds"`
	Creates       int     `json:"creates"`
	CreateRate    float64 `json:"create_rate"`
	Concurrency   int     `json:"concurrency"`
}

// Result is the result of one case.
type Result struct {
	Case
	Date    time.Time       `json:"date"`
	Seconds float64         `json:"seconds"` // how long the case took
	Machine cluster.Machine `json:"machine"`
	// Objects in the cluster, by kind.
	Objects map[string]int `json:"objects"`
	// Sizes are their mean sizes in JSON, in bytes.
	Sizes map[string]int `json:"sizes"`
	// Replicas are the processes; the one that joins is the last.
	Replicas []Replica `json:"replicas"`
	// Quiet are the servers when all is settled, before the window.
	Quiet  cluster.Heap `json:"quiet"`
	Window Window       `json:"window"`
	// Base is a quiet time before a join.
	Base   *Window `json:"base,omitempty"`
	Moved  int     `json:"moved,omitempty"` // objects of all sharded kinds that the joiner holds at the end
	Delays []Delay `json:"delays,omitempty"`
}

// Replica is the cost of one process.
type Replica struct {
	Role string `json:"role"`
	resident
	Watches int64 `json:"watches"`
	// Start lasts from the start of the process until all is quiet. Window is the load, the idle time or the join.
	Start  Phase `json:"start"`
	Window Phase `json:"window"`
}

// Roles of replicas.
const (
	roleActive  = "active"
	roleStandby = "standby"
	roleMember  = "member"
	roleJoiner  = "joiner"
)

// Phase is what a process did in a period.
type Phase struct {
	Seconds    float64        `json:"seconds"`
	CPUSeconds float64        `json:"cpu_seconds"`
	Bytes      int64          `json:"bytes"`
	Reconciles int64          `json:"reconciles"`
	PeakHeap   uint64         `json:"peak_heap"`
	Requests   map[string]int `json:"requests"`
	Received   map[string]int `json:"received"`
}

// Window is what the servers did in a period.
type Window struct {
	Seconds       float64 `json:"seconds"`
	ServerSeconds float64 `json:"server_cpu_seconds"`
	EtcdSeconds   float64 `json:"etcd_cpu_seconds"`
}

// Delay is how long new Websites waited for their first reconcile, from the start of the request that created them.
type Delay struct {
	Form    Form    `json:"form"`
	Creates int     `json:"creates"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	// Create is the median duration of the request itself.
	Create float64 `json:"create_p50_ms"`
	// Writes is how many requests the operator made per new Website to write objects of sharded kinds.
	Writes float64 `json:"writes"`
}

// resultsPath is the path of the results beside a page.
func resultsPath(page string) string { return strings.TrimSuffix(page, ".md") + ".json" }

// load reads the results of earlier runs. Without a file it returns an empty report.
func load(path string, p Parameters) (*Report, error) {
	r := &Report{Parameters: p}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read the results of earlier runs in %s: %w", path, err)
	}
	if r.Parameters != p {
		return nil, fmt.Errorf("%s has results of other parameters (%+v, now %+v): remove it, or choose another --output",
			path, r.Parameters, p)
	}
	return r, nil
}

// put adds a run. It replaces an earlier one of the same case.
func (r *Report) put(run Result) {
	if i := slices.IndexFunc(r.Results, func(x Result) bool { return x.Case == run.Case }); i >= 0 {
		r.Results[i] = run
		return
	}
	r.Results = append(r.Results, run)
}

// find returns the run of a case, or nil.
func (r *Report) find(c Case) *Result {
	for i := range r.Results {
		if r.Results[i].Case == c {
			return &r.Results[i]
		}
	}
	return nil
}

// save writes the results, and the page.
func (r *Report) save(page string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(resultsPath(page), append(text, '\n'), 0o644); err != nil {
		return err
	}
	out, err := r.Markdown()
	if err != nil {
		return err
	}
	return os.WriteFile(page, out, 0o644)
}
