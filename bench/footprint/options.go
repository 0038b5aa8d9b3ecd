package footprint

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/stage"
)

// Options say what to measure. Most cases require Objects, Members and Deliveries.
type Options struct {
	// Objects is the number of Websites, JoinObjects the number in the measurement of a join; at most Objects.
	Objects, JoinObjects int
	// Members are the numbers of members to measure, Deliveries the deliveries of Rota.
	Members    []int
	Deliveries []Form
	// Rate is how many Websites change per second in the steady load, Window how long the load lasts. Idle replicas are
	// measured for half of that time.
	Rate   float64
	Window time.Duration
	// Creates is how many Websites are created for each form to measure latencies, CreateRate how many per second.
	Creates    int
	CreateRate float64
	// Lease is the LeaseDuration of the rotas; 0 is its default.
	Lease time.Duration
	// Quiet is how long there must be no activity before replicas count as settled; 0 is 3 s. New owners of slots
	// enqueue their objects as fast as workers take them.
	Quiet time.Duration
	// Only selects the cases to measure by name; nil: all. See Cases.
	Only *regexp.Regexp
	// Resume skips cases whose results are in the output.
	Resume bool
	// Output is the page. The results are in a .json file beside it. Results of other cases in that file stay if they
	// have the same parameters.
	Output string
	// Progress gets a line for each step of the run.
	Progress io.Writer
	// Command starts a replica: a program that calls OperatorMain, and its arguments. Default: this program.
	Command []string

	keep bool // keep the API server from case to case, in tests
}

func (o *Options) validate() error {
	if o.Quiet == 0 {
		o.Quiet = 3 * time.Second
	}
	switch {
	case o.Objects < 10 || o.JoinObjects < 10:
		return fmt.Errorf("%d and %d objects: must be at least 10", o.Objects, o.JoinObjects)
	case o.JoinObjects > o.Objects:
		return fmt.Errorf("%d objects for joins: must be at most the %d of the rest", o.JoinObjects, o.Objects)
	case o.Rate <= 0 || o.CreateRate <= 0 || o.Creates < 1 || o.Window <= 0:
		return errors.New("rates, creates and window: must be above 0")
	case o.Output == "":
		return errors.New("output: name the page to write")
	case slices.ContainsFunc(o.Members, func(n int) bool { return n < 1 || n > 20 }):
		return fmt.Errorf("members %v: each must be from 1 to 20", o.Members)
	}
	return nil
}

// parameters are those on which results depend.
func (o *Options) parameters() Parameters {
	return Parameters{
		Objects: o.Objects, JoinObjects: o.JoinObjects, Rate: o.Rate, WindowSeconds: o.Window.Seconds(),
		Creates: o.Creates, CreateRate: o.CreateRate, WebsiteBytes: cluster.WebsiteBytes, Concurrency: stage.Concurrency,
	}
}
