package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rota-dev/rota/test/rig/oracle"
)

// Result is what one run showed.
type Result struct {
	planned
	Fence   bool            `json:"fence"`
	Seconds float64         `json:"seconds"`
	Verdict *oracle.Verdict `json:"verdict,omitempty"`
	// Error says why the run could not be judged.
	Error string `json:"error,omitempty"`
}

// Failures says in words what is wrong.
func (r Result) Failures() []string {
	if r.Error != "" || r.Verdict == nil {
		return []string{"not judged: " + r.Error}
	}
	f := find(r.Fault)
	return r.Verdict.Failures(!r.Fence && f.late || f.limit)
}

// results are those of a campaign so far, and the file that they are appended to.
type results struct {
	file *os.File // nil: none
	all  []Result
}

// openResults reads the results that there are. They must be of a campaign with the same options.
func openResults(o *Options) (*results, error) {
	r := &results{}
	if o.Results == "" {
		return r, nil
	}
	if err := r.read(o); err != nil {
		return nil, fmt.Errorf("results %s: %w", o.Results, err)
	}
	var err error
	r.file, err = os.OpenFile(o.Results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return r, err
}

func (r *results) read(o *Options) error {
	file, err := os.Open(o.Results)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var result Result
		if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
			return err
		}
		plan := o.planned()
		if n := result.Number; n < 1 || n <= len(plan) && plan[n-1] != result.planned || result.Fence != o.Fence {
			return fmt.Errorf("run %d is of %s, seed %d, fence %t: that is another campaign; use another file",
				n, result.Fault, result.Seed, result.Fence)
		}
		if result.Number <= len(plan) {
			r.all = append(r.all, result)
		}
	}
	return lines.Err()
}

func (r *results) has(p planned) bool {
	for _, result := range r.all {
		if result.planned == p {
			return true
		}
	}
	return false
}

func (r *results) add(result Result) error {
	r.all = append(r.all, result)
	if r.file == nil {
		return nil
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(text, '\n'))
	return err
}

func (r *results) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
