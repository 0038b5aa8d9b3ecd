// Package dispatch runs dispatchers and workers in front of an audience: Websites that are reconciled by workers in
// Go and Python, on a real API server, under a load that never stops. Meanwhile dispatchers join, leave, crash and
// roll, and workers are killed and stopped. Package check judges the run by the workers' journals.
package dispatch

import (
	"fmt"
	"io"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Options are the options of Run. Slots is required; see cmd/rota for its default.
type Options struct {
	// Kubeconfig names a cluster to use, as an administrator; empty: a control plane of its own.
	Kubeconfig string
	// Objects is the number of Websites. 0: as many as the machine reconciles in 10 s, at most 600.
	Objects int
	// Rate is the number of updates, deletions and recreations per second. 0: a third of the Websites that the machine
	// can bring up per second, at most 50.
	Rate float64
	// Slots is the number of slots of the rota.
	Slots slot.Count
	// LeaseDuration is that of the dispatchers; 0: 15 s.
	LeaseDuration time.Duration
	// TakeLength is how long a take lasts; 0: 6 s.
	TakeLength time.Duration
	// Forget has the dispatchers not remember names.
	Forget bool
	// Python is the interpreter for workers in Python; empty: python3, if there is one.
	Python string
	// Seed is that of the load; 0: a random one, which is told.
	Seed uint64
	// Keep leaves the folder with journals and logs behind, and tells where it is.
	Keep bool
	// Verbose has the processes log more.
	Verbose bool
	// Progress gets lines that tell what happens.
	Progress io.Writer
	// Release, unless empty, is the program rota-demo of another release. Every second worker in Go is its, and in the
	// rolling restart its dispatchers take the place of the others.
	Release string
	// Command starts a process that calls Main: a program, and its arguments. Default: this program with the argument
	// "demo-dispatch".
	Command []string
}

func (o *Options) validate() error {
	switch {
	case o.Objects < 0 || o.Objects > 100_000:
		return fmt.Errorf("objects %d: must be from 1 to 100000, or 0 for what the machine can sustain", o.Objects)
	case !(o.Rate >= 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be at most 1000 per second, or 0 for what the machine can sustain", o.Rate)
	case o.LeaseDuration < 0:
		return fmt.Errorf("lease duration %v: must be above 0", o.LeaseDuration)
	case o.TakeLength < 0 || o.TakeLength > 0 && o.TakeLength < 2*time.Second:
		return fmt.Errorf("take length %v: must be at least 2s", o.TakeLength)
	case o.Slots < 16:
		if err := o.Slots.Validate(); err != nil {
			return err
		}
		return fmt.Errorf("slot count %d: use at least 16, so that there is something to share", o.Slots)
	}
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 15 * time.Second
	}
	if o.TakeLength == 0 {
		o.TakeLength = 6 * time.Second
	}
	return o.Slots.Validate()
}

// world is what the checker has to be told.
func (o *Options) world() judge.World { return judge.World{Slots: o.Slots, Key: slot.KeyName} }
