package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"
)

// serverProfile is how long the API server is profiled, from the beginning of a scenario.
const serverProfile = 5 * time.Second

// profiler writes profiles of this process. Its methods may be called concurrently.
type profiler struct {
	mu   sync.Mutex
	file *os.File // nil: none is under way
}

// begin begins a profile of the processor in a file, and ends the one before. "": there is none after it.
func (p *profiler) begin(path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if p.file != nil {
		pprof.StopCPUProfile()
		errs = append(errs, p.file.Close())
		p.file = nil
	}
	if path == "" {
		return errors.Join(errs...)
	}
	f, err := os.Create(path)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(append(errs, err, f.Close())...)
	}
	p.file = f
	return errors.Join(errs...)
}

// profile begins profiles of all processes, and of the API server, for a scenario, and returns what ends them.
func (c *crew) profile(ctx context.Context, scenario string) (end func() error, err error) {
	if c.Profiles == "" {
		return func() error { return nil }, nil
	}
	prefix := filepath.Join(c.Profiles, fmt.Sprintf("%s-%d-%s-", c.strategy.Name, c.size, scenario))
	ask := func(prefix string) error {
		c.profiles = prefix
		for _, r := range c.processes() {
			path := ""
			if prefix != "" {
				path = prefix + r.pod + ".pprof"
			}
			var failed string
			if err := r.asks(ctx, askProfile, path, &failed); err != nil || failed != "" {
				return errors.Join(err, fmt.Errorf("profile %s: %s", r.pod, failed))
			}
		}
		return nil
	}
	server := make(chan error, 1)
	go func() {
		url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%.0f", c.cluster.Config.Host, serverProfile.Seconds())
		text, err := c.cluster.Get(ctx, url)
		if err == nil {
			err = os.WriteFile(prefix+"apiserver.pprof", text, 0o644)
		}
		server <- err
	}()
	return func() error {
		err := ask("")
		return errors.Join(err, <-server)
	}, ask(prefix)
}
