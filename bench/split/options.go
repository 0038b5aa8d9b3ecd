package split

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"time"
)

// Options say what to measure.
type Options struct {
	// ConfigMaps and Pods are the flood: dependents whose owners are deleted.
	ConfigMaps int `json:"configmaps"`
	Pods       int `json:"pods"`
	// Rounds is how often each case is measured.
	Rounds int `json:"rounds"`
	// Quiet is how long the load lasts before the flood. Flood is how long it lasts after its begin, except in scenarios
	// that wait until all is collected.
	Quiet time.Duration `json:"quiet"`
	Flood time.Duration `json:"flood"`
	// Rate is how many Deployments per second are created or scaled, Replicas the Pods that each adds.
	Rate     float64 `json:"rate"`
	Replicas int     `json:"replicas"`
	// Calls is how many gets, lists and creates there are per second, of each.
	Calls float64 `json:"calls"`
	// Manager and Servers are the processors, as taskset takes them, of all kube-controller-managers together, and of
	// etcd and the API server. Empty: any.
	Manager string `json:"manager_cpus"`
	Servers string `json:"server_cpus"`
	// Only selects cases by name; nil: all.
	Only *regexp.Regexp `json:"-"`
	// Output is a path without extension: .json gets the results, .md the tables.
	Output string `json:"-"`
	// Profiles, if set, is a folder for a CPU profile of each kube-controller-manager during the flood.
	Profiles string `json:"-"`
	// Progress gets a line for each step.
	Progress io.Writer `json:"-"`
}

func (o *Options) validate() error {
	switch {
	case o.ConfigMaps < 1 || o.Pods < 1:
		return fmt.Errorf("%d ConfigMaps and %d Pods: must be at least 1", o.ConfigMaps, o.Pods)
	case o.Rounds < 1 || o.Replicas < 1:
		return errors.New("rounds and replicas: must be at least 1")
	case o.Quiet <= 0 || o.Flood <= 0:
		return errors.New("quiet and flood: must be above 0")
	case o.Rate <= 0 || o.Calls <= 0:
		return errors.New("rate and calls: must be above 0")
	case o.Output == "":
		return errors.New("output: name the files to write")
	}
	if o.Manager == "" && o.Servers == "" {
		return nil
	}
	if _, err := exec.LookPath("taskset"); err != nil {
		return fmt.Errorf("processors %q and %q need taskset, of Linux; leave both empty to use all: %w",
			o.Manager, o.Servers, err)
	}
	return nil
}
