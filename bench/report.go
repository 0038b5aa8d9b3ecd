package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Report holds the measurements.
type Report struct {
	Series []*Series `json:"series"`
}

// Series is what was measured with the same parameters.
type Series struct {
	Parameters Parameters `json:"parameters"`
	Machine    Machine    `json:"machine"`
	Date       time.Time  `json:"date"`
	Results    []Result   `json:"results"`
}

// Parameters are those on which results depend.
type Parameters struct {
	Objects       int     `json:"objects"`
	Rate          float64 `json:"rate"`
	WindowSeconds float64 `json:"window_seconds"`
}

// Result is one scenario of one life. Counts are those of all replicas and the sharder.
type Result struct {
	Strategy string `json:"strategy"`
	Replicas int    `json:"replicas"`
	Scenario string `json:"scenario"`
	// Revision is that of the repository.
	Revision string `json:"revision"`
	// Took is how long it took until the work was distributed, Seconds how long all was measured, the wait for quiet
	// included.
	Took    float64 `json:"took"`
	Seconds float64 `json:"seconds"`
	// Changes is how many Websites were changed meanwhile. Missed are those of them that were not reconciled in the end.
	Changes int `json:"changes,omitempty"`
	Missed  int `json:"missed,omitempty"`
	// WaitP50, WaitP99 and WaitMax are milliseconds from the request for a change until it was shown to be reconciled.
	WaitP50 float64 `json:"wait_p50_ms,omitempty"`
	WaitP99 float64 `json:"wait_p99_ms,omitempty"`
	WaitMax float64 `json:"wait_max_ms,omitempty"`
	// Writes are those of objects that no reconcile sent, Listed how many lists of objects were answered, or pages.
	Writes     int            `json:"writes"`
	Listed     int            `json:"listed"`
	Reconciles int64          `json:"reconciles"`
	Requests   map[string]int `json:"requests"`
	Bytes      int64          `json:"bytes"` // from the API server
	Watches    int64          `json:"watches"`
	// CPU, APIServer and Etcd are processor seconds.
	CPU       float64 `json:"cpu"`
	APIServer float64 `json:"apiserver_cpu"`
	Etcd      float64 `json:"etcd_cpu"`
	// LiveHeap is that of all processes after a garbage collection at the end, Greatest that of the greatest of them,
	// PeakHeap the sum of their peaks with garbage.
	LiveHeap uint64 `json:"live_heap"`
	Greatest uint64 `json:"greatest_heap"`
	PeakHeap uint64 `json:"peak_heap"`
	// ServerHeap is the API server's heap after a garbage collection at the end, or 0 in results of older builds.
	ServerHeap uint64 `json:"apiserver_heap"`
}

// String is a line for the progress.
func (r *Result) String() string {
	return fmt.Sprintf("%s took %.1f s; %d changes, %d missed, waited p50 %.0f, p99 %.0f, most %.0f ms; %d reconciles; "+
		"%d writes beside; processor %.1f s, API server %.1f s; heap %.0f MB, peak %.0f", r.Scenario, r.Took, r.Changes,
		r.Missed, r.WaitP50, r.WaitP99, r.WaitMax, r.Reconciles, r.Writes, r.CPU, r.APIServer, float64(r.LiveHeap)/1e6,
		float64(r.PeakHeap)/1e6)
}

func (r *Result) setWaits(waits []time.Duration, missed int) {
	r.Changes, r.Missed = len(waits)+missed, missed
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	at := func(percent int) float64 {
		return float64(waits[(len(waits)*percent+99)/100-1].Microseconds()) / 1000
	}
	r.WaitP50, r.WaitP99, r.WaitMax = at(50), at(99), at(100)
}

// Load reads a report. It is empty if there is no such file.
func Load(path string) (*Report, error) {
	r := &Report{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: remove it to begin anew", path, err)
	}
	return r, nil
}

// Save writes the report.
func (r *Report) Save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// with returns the series with parameters, which is added if there is none.
func (r *Report) with(p Parameters) *Series {
	for _, s := range r.Series {
		if s.Parameters == p {
			return s
		}
	}
	s := &Series{Parameters: p}
	r.Series = append(r.Series, s)
	return s
}

// put adds the results of a life. Those of earlier runs of these scenarios, with the strategy and as many replicas, go
// if it is the first.
func (r *Series) put(first bool, strategy string, replicas int, results []Result) {
	if first {
		r.Results = slices.DeleteFunc(r.Results, func(old Result) bool {
			return old.Strategy == strategy && old.Replicas == replicas && slices.ContainsFunc(results, func(r Result) bool {
				return r.Scenario == old.Scenario
			})
		})
	}
	r.Results = append(r.Results, results...)
}

// of returns the results of a scenario.
func (r *Series) of(strategy string, replicas int, scenario string) (out []*Result) {
	for i := range r.Results {
		if res := &r.Results[i]; res.Strategy == strategy && res.Replicas == replicas && res.Scenario == scenario {
			out = append(out, res)
		}
	}
	return out
}

// ran reports whether there are results of a strategy.
func (r *Series) ran(s Strategy) bool {
	return slices.ContainsFunc(r.Results, func(res Result) bool { return res.Strategy == s.Name })
}

// replicas are the numbers that there are results of a scenario with; "": of any.
func (r *Series) replicas(scenario string) (out []int) {
	for i := range r.Results {
		if scenario == "" || r.Results[i].Scenario == scenario {
			out = append(out, r.Results[i].Replicas)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
