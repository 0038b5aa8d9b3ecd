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
func (c *crew) profile(ctx context.Context, sc scenario) (end func() error, err error) {
	if c.Profiles == "" {
		return func() error { return nil }, nil
	}
	c.profiles = filepath.Join(c.Profiles, fmt.Sprintf("%s-%d-%s-%d-", c.strategy.Name, c.size, sc.name, c.lives))
	all := func(of func(*replica) string) error {
		for _, r := range c.processes() {
			if err := c.profileTo(ctx, r, of(r)); err != nil {
				return err
			}
		}
		return nil
	}
	server := make(chan error, 1)
	if sc.another {
		server <- nil // it ends before its profile would
	} else {
		path := c.profiles + "apiserver.pprof"
		go func() { server <- c.profileServer(ctx, path) }()
	}
	return func() error {
		c.profiles = ""
		return errors.Join(all(func(*replica) string { return "" }), <-server)
	}, all(func(r *replica) string { return c.profileOf(r.pod) })
}

func (c *crew) profileServer(ctx context.Context, path string) error {
	text, err := c.cluster.Get(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%.0f", c.cluster.Config.Host,
		serverProfile.Seconds()))
	if err != nil {
		return fmt.Errorf("profile the API server: %w", err)
	}
	return os.WriteFile(path, text, 0o644)
}

// profileOf names another file for a profile of a pod's process; "": there are none now.
func (c *crew) profileOf(pod string) string {
	if c.profiles == "" {
		return ""
	}
	c.profiled++
	return fmt.Sprintf("%s%s-%d.pprof", c.profiles, pod, c.profiled)
}

// profileTo begins a replica's profile in a file, and ends the one before. "": there is none after it.
func (c *crew) profileTo(ctx context.Context, r *replica, path string) error {
	if c.Profiles == "" {
		return nil
	}
	var failed string
	if err := r.asks(ctx, askProfile, path, &failed); err != nil || failed != "" {
		return errors.Join(err, fmt.Errorf("profile %s: %s", r.pod, failed))
	}
	return nil
}
