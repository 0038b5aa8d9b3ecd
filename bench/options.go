package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// perSite is how many objects a Website stands for: itself, a Deployment, a Service and a ConfigMap.
const perSite = 4

// Options say what to measure.
type Options struct {
	// Objects is the number of objects, children included.
	Objects int
	// Replicas are the numbers of replicas. Each is measured by itself.
	Replicas []int
	// Strategies are compared.
	Strategies []Strategy
	// Scenarios names the scenarios to measure besides start. If nil, all run that need not be named.
	Scenarios []string
	// Rounds is how often each strategy lives.
	Rounds int
	// Rate is how many Websites change per second, Window how long the steady load lasts.
	Rate   float64
	Window time.Duration
	// Quiet is how long nothing must happen before a scenario begins.
	Quiet time.Duration
	// Output is the file for the results, as JSON. Results of other strategies, replicas and parameters stay there.
	Output string
	// Progress gets a line for each step, unless it is nil.
	Progress io.Writer
	// Command starts a replica: a program that calls OperatorMain, and its arguments. Default: this program.
	Command []string
}

func (o *Options) validate() error {
	switch {
	case o.sites() < 10:
		return fmt.Errorf("%d objects: must be at least %d", o.Objects, 10*perSite)
	case o.Rate <= 0 || o.Window <= 0 || o.Quiet <= 0:
		return errors.New("rate, window and quiet: must be above 0")
	case o.Rounds < 1:
		return fmt.Errorf("%d rounds: must be at least 1", o.Rounds)
	case len(o.Strategies) == 0:
		return errors.New("strategies: name at least one")
	case len(o.Replicas) == 0 || slices.ContainsFunc(o.Replicas, func(n int) bool { return n < 1 || n > 20 }):
		return fmt.Errorf("replicas %v: each must be from 1 to 20", o.Replicas)
	}
	if _, err := os.Stat(filepath.Dir(o.Output)); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	for _, name := range o.Scenarios {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name }) {
			var all []string
			for _, s := range scenarios {
				all = append(all, s.name)
			}
			return fmt.Errorf("scenario %q: must be one of %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// sites is the number of Websites.
func (o *Options) sites() int { return o.Objects / perSite }

func (o *Options) parameters() Parameters {
	return Parameters{Objects: o.Objects, Rate: o.Rate, WindowSeconds: o.Window.Seconds()}
}

// wants reports whether to measure a scenario with a strategy and a number of replicas.
func (o *Options) wants(sc scenario, s Strategy, replicas int) bool {
	switch {
	case sc.name == "start":
		return true
	case o.Scenarios == nil && sc.named, o.Scenarios != nil && !slices.Contains(o.Scenarios, sc.name):
		return false
	}
	return !sc.never(s) && replicas >= sc.least
}
