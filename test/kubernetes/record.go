// Package kubernetes runs Rota on control planes of every version of Kubernetes that kube/ can build, and writes
// docs/kubernetes.md. `make check WHAT=kubernetes` runs it.
//
// What a server has is asked of it: no fact about a version is written down here.
package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/rota-dev/rota/internal/cli/check"
)

// Record is what one version showed. Records are kept in a folder, one file per minor version.
type Record struct {
	// Minor is the version of Kubernetes without its patch, such as 1.33, Version that of the API server, with a v, Etcd
	// that of its etcd.
	Minor   string `json:"minor"`
	Version string `json:"version"`
	Etcd    string `json:"etcd"`
	// At is when it ended.
	At     time.Time `json:"at"`
	Server Server    `json:"server"`
	// Pre are the lines of `rota check --pre` that are not good, or tell what the server lacks.
	Pre []check.Line `json:"pre"`
	// Suites are the tests that ran, by the names of Suites, and TestsSeconds how long they took with their build.
	Suites       map[string]Outcome `json:"suites"`
	TestsSeconds float64            `json:"tests_seconds"`
	Demo         Demo               `json:"demo"`
}

// Outcome counts tests, with their subtests.
type Outcome struct {
	Passed  int      `json:"passed"`
	Skipped int      `json:"skipped,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Demo is what of the demo's report counts.
type Demo struct {
	Objects          int      `json:"objects"`
	Overlaps         int      `json:"overlaps"`
	ForeignWrites    *int     `json:"foreign_writes"`
	UnownedAtEnd     int      `json:"unowned_at_end"`
	DeletionsMissed  int      `json:"deletions_missed"`
	Children         int      `json:"children"`
	ChildrenRight    int      `json:"children_right"`
	Reconciled       int      `json:"reconciled"`
	TakenOverSeconds float64  `json:"taken_over_seconds"`
	Ended            []string `json:"ended,omitempty"`
	// Failures is what the demo says must not have happened; empty: all is well.
	Failures string  `json:"failures,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// Failures lists what did not work on the version.
func (r *Record) Failures() (all []string) {
	for _, name := range Suites {
		if o, ran := r.Suites[name]; !ran || o.Passed == 0 {
			all = append(all, name+": nothing passed")
		}
		for _, test := range r.Suites[name].Failed {
			all = append(all, name+": "+test+" failed")
		}
	}
	for _, l := range r.Pre {
		if l.Level == check.Failed {
			all = append(all, "rota check --pre: "+l.Text)
		}
	}
	if r.Demo.Objects == 0 {
		all = append(all, "the demo: it has not run")
	}
	if r.Demo.Failures != "" {
		all = append(all, "the demo: "+r.Demo.Failures)
	}
	return all
}

// Read returns the records of a folder, the oldest version first.
func Read(folder string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r Record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".json"); r.Minor != want {
			return nil, fmt.Errorf("%s is of Kubernetes %q", file, r.Minor)
		}
		if _, err := version.ParseMajorMinor(r.Minor); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int {
		order, _ := version.MustParseMajorMinor(a.Minor).Compare(b.Minor) // the error is that of parsing
		return order
	})
	return out, nil
}

// Write puts a record into a folder.
func (r *Record) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.Minor+".json"), append(text, '\n'), 0o644)
}
