// Package dispatch runs dispatchers and workers in front of an audience: Websites that are reconciled by workers in
// Go and Python, on a real API server, under a load that never stops. Meanwhile dispatchers join, leave, crash and
// roll, and workers are killed and stopped. Package judge judges the run by the workers' journals.
package dispatch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rota-dev/rota/test/rig"
)

// Options are the options of Run. Command starts a process that calls Main. Default: this program with the argument
// "demo-dispatch".
type Options struct {
	rig.StageOptions
	// TakeLength is how long a take lasts; 0: 6 s.
	TakeLength time.Duration
	// Forget has the dispatchers not remember names.
	Forget bool
	// Python is the interpreter for workers in Python; empty: python3, if there is one.
	Python string
	// Release, unless empty, is the program rota-demo of another release. Every second worker in Go is its, and in the
	// rolling restart its dispatchers take the place of the others.
	Release string
}

func (o *Options) validate() error {
	if o.TakeLength != 0 && o.TakeLength < 2*time.Second {
		return fmt.Errorf("take length %v: must be at least 2s", o.TakeLength)
	}
	o.TakeLength, o.Python = cmp.Or(o.TakeLength, 6*time.Second), cmp.Or(o.Python, "python3")
	return o.Validate()
}
