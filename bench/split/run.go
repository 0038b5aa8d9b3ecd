package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
)

const (
	// countEvery is how often what is left of the garbage is counted.
	countEvery = 500 * time.Millisecond
	// grace is how long Deployments may take to get their Pods after a window.
	grace = 10 * time.Second
	// profiled is how long a CPU profile lasts.
	profiled = 10 * time.Second
)

// runner measures one case after the other.
type runner struct {
	Options
	begun time.Time
}

// Run measures all cases, round by round, and writes the results after each case.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r := &runner{Options: o, begun: time.Now()}
	report := &Report{Options: o, Machine: machine()}
	for round := range o.Rounds {
		for _, c := range o.cases(round) {
			r.say("%s, round %d of %d", c, round+1, o.Rounds)
			res, err := r.measure(ctx, c, round)
			if err != nil {
				return report, fmt.Errorf("%s: %w", c, err)
			}
			report.Results = append(report.Results, *res)
			if err := report.save(); err != nil {
				return report, err
			}
		}
	}
	return report, nil
}

// measure measures one case on a control plane of its own: first without a flood, then with it.
func (r *runner) measure(ctx context.Context, c Case, round int) (_ *Result, err error) {
	dir, err := os.MkdirTemp("", "rota-splitbench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	res := &Result{Scenario: c.Scenario.Name, Form: c.Form, Round: round, LoadAverage: loadAverage()}
	begun := time.Now()
	cl, err := openCluster(ctx, &r.Options, c, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cl.failure(), cl.close()) }()
	d, stop, err := watchDeployments(ctx, cl.client, r.Replicas)
	if err != nil {
		return nil, err
	}
	defer stop()
	r.say("  %d ConfigMaps and %d Pods are there, and %d kube-controller-managers, after %v",
		r.ConfigMaps, r.Pods, len(cl.managers), time.Since(begun).Round(time.Second))
	l := &load{&r.Options, &calls{client: cl.client, took: map[string][]time.Duration{}}, d}
	if res.Quiet, err = r.window(ctx, cl, l, nil); err != nil {
		return nil, fmt.Errorf("without a flood: %w", err)
	}
	r.say("  without a flood: %s", res.Quiet)
	if res.Flood, err = r.window(ctx, cl, l, &c); err != nil {
		return nil, fmt.Errorf("with the flood: %w", err)
	}
	r.say("  with the flood: %s", res.Flood)
	return res, nil
}

// window runs the load for a while and measures. With a case it begins with its flood.
func (r *runner) window(ctx context.Context, cl *cluster, l *load, flood *Case) (w Window, err error) {
	before, err := cl.read(ctx)
	if err != nil {
		return w, err
	}
	all, err := cl.left(ctx)
	if err != nil {
		return w, err
	}
	ended, running := make(chan struct{}), make(chan struct{})
	begun := journal.Now()
	go func() {
		l.run(ctx, ended)
		close(running)
	}()
	if flood == nil {
		err = await.Sleep(ctx, r.Quiet)
	} else {
		err = r.flood(ctx, cl, *flood, begun, all, &w)
	}
	close(ended)
	<-running
	if err != nil {
		return w, err
	}
	w.Seconds = (journal.Now() - begun).Seconds()
	after, err := cl.read(ctx)
	if err != nil {
		return w, err
	}
	w.Processes = after.since(before)
	late := await.Until(ctx, 50*time.Millisecond, grace, l.deployments.settled)
	if ctx.Err() != nil {
		return w, ctx.Err()
	}
	took, waiting, err := l.deployments.take(journal.Now())
	if late != nil {
		w.Unfinished = len(waiting)
	}
	w.Changes = latencies(append(took, waiting...))
	made, faults := l.calls.take()
	w.Calls = map[string]Latencies{}
	for name, list := range made {
		if name != "change" {
			w.Calls[name] = latencies(list)
		}
	}
	return w, errors.Join(err, faults)
}

// flood deletes the owners and waits until all is collected or the window ends.
func (r *runner) flood(ctx context.Context, cl *cluster, c Case, begun time.Duration, all int, w *Window) error {
	if err := cl.flood(ctx); err != nil {
		return err
	}
	if r.Profiles != "" {
		go r.profile(ctx, cl, c)
	}
	garbage, limit := r.ConfigMaps+r.Pods, r.Flood
	if c.Scenario.Whole {
		limit = collectLimit
	}
	for {
		if err := await.Sleep(ctx, countEvery); err != nil {
			return err
		}
		left, err := cl.left(ctx)
		if err != nil {
			return err
		}
		now := journal.Now() - begun
		w.Collected = min(garbage, all-left)
		if gone := all-left >= garbage+owners; gone && w.CollectSeconds == 0 {
			w.CollectSeconds = now.Seconds()
		}
		if now >= limit || w.CollectSeconds > 0 && now >= r.Quiet {
			return nil
		}
	}
}

// profile writes the CPU profiles of the managers. A failure is only reported.
func (r *runner) profile(ctx context.Context, cl *cluster, c Case) {
	for _, m := range cl.managers {
		go func() {
			text, err := get(ctx, m.http, fmt.Sprintf("%s/debug/pprof/profile?seconds=%.0f", m.url, profiled.Seconds()))
			if err == nil {
				name := strings.ReplaceAll(c.String(), "/", "-") + "-" + m.name + ".pprof"
				err = os.WriteFile(filepath.Join(r.Profiles, name), text, 0o600)
			}
			if err != nil {
				r.say("  profile of %s: %v", m.name, err)
			}
		}()
	}
}

func (r *runner) say(format string, args ...any) {
	at := time.Since(r.begun).Round(time.Second)
	_, _ = fmt.Fprintf(r.Progress, "%7s  %s\n", at, fmt.Sprintf(format, args...)) // only progress
}
