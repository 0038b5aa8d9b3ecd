package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/test/rig/process"
)

// crew is the replicas of one strategy's operator, and its sharder.
type crew struct {
	*runner
	strategy Strategy
	name     string // of the rota, the leader's Lease or the ring
	size     int    // replicas to begin with
	replicas []*replica
	sharding *replica // nil if the strategy has no sharder
	made     int      // replicas that were started
	gone     reading  // what those that ended had done
}

func (r *runner) newCrew(s Strategy, replicas int) *crew {
	return &crew{
		runner: r, strategy: s, name: fmt.Sprintf("%s-%d", s.Name, replicas), size: replicas, gone: newReading(),
	}
}

// open starts the sharder, if the strategy has one.
func (c *crew) open(ctx context.Context) error {
	if !c.strategy.Labels {
		return nil
	}
	port, err := process.FreePort(ctx)
	if err != nil {
		return err
	}
	c.sharding, err = c.process(ctx, c.name+"-sharder", operatorConfig{Port: port})
	return err
}

// close ends all processes.
func (c *crew) close(ctx context.Context) error {
	for _, r := range c.processes() {
		r.Kill()
	}
	if !c.strategy.Labels {
		return nil
	}
	return sharder(c.name, c.cluster.Namespace).Uninstall(context.WithoutCancel(ctx), c.cluster.Client)
}

// processes are the replicas that run, and the sharder.
func (c *crew) processes() []*replica {
	if c.sharding == nil {
		return c.replicas
	}
	return append(slices.Clone(c.replicas), c.sharding)
}

// process starts a process. It returns when that answers, and has not begun to work.
func (c *crew) process(ctx context.Context, pod string, config operatorConfig) (*replica, error) {
	config.Strategy, config.Name, config.Pod, config.Namespace = c.strategy.Name, c.name, pod, c.cluster.Namespace
	config.Kubeconfig, config.Dir = c.cluster.Plane.Kubeconfig(), c.dir
	// All replicas have the same build: Rota treats a member whose build is that of a leaver in a special way.
	p, err := process.Start(process.Options{
		Name: pod, Command: c.Command, Log: filepath.Join(c.dir, pod+".log"), Answers: true,
		Variable: EnvOperator, Config: config,
		Env: []string{
			"POD_NAME=" + pod, "POD_UID=uid-" + pod, "CONTAINER_NAME=manager", "POD_NAMESPACE=" + c.cluster.Namespace,
		},
	})
	if err != nil {
		return nil, err
	}
	r := &replica{Process: p, pod: pod, number: config.Number}
	if _, err := r.reading(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// pod names the next replica, which has a number. With a static number, that is in the name.
func (c *crew) pod(number int) string {
	if !c.strategy.Static {
		number = c.made
	}
	c.made++
	return fmt.Sprintf("%s-%d", c.name, number)
}

// start starts a replica of as many as there are to be.
func (c *crew) start(ctx context.Context, number, of int) error {
	return c.startAs(ctx, c.pod(number), number, of)
}

func (c *crew) startAs(ctx context.Context, pod string, number, of int) error {
	r, err := c.process(ctx, pod, operatorConfig{Number: number, Of: of})
	if err == nil {
		c.replicas = append(c.replicas, r)
	}
	return err
}

// end notes what a replica did, and ends it.
func (c *crew) end(ctx context.Context, r *replica, crashes bool) error {
	last, err := r.reading(ctx)
	if err != nil {
		return err
	}
	c.gone.add(last)
	c.replicas = slices.DeleteFunc(c.replicas, func(other *replica) bool { return other == r })
	return r.end(ctx, crashes)
}

// working returns the replica that leads, or one of those that work.
func (c *crew) working(ctx context.Context) (*replica, error) {
	for _, r := range c.replicas {
		if now, err := r.reading(ctx); err != nil || now.Working {
			return r, err
		}
	}
	return nil, errors.New("no replica works")
}

// settle waits until the work is distributed, and returns when it was.
func (c *crew) settle(ctx context.Context) (time.Time, error) {
	err := until(ctx, c.strategy.Name+": the work is not distributed", func() (bool, error) { return c.settled(ctx) })
	if err != nil || !c.strategy.Labels {
		return time.Now(), err
	}
	return c.placed(ctx)
}

// settled reports whether the replicas that should work do, and nothing moves between members.
func (c *crew) settled(ctx context.Context) (bool, error) {
	works, moves := 0, false
	for _, r := range c.replicas {
		now, err := r.reading(ctx)
		if err != nil {
			return false, err
		}
		if now.Working && now.Reconciles > 0 {
			works++
		}
		moves = moves || !now.Settled || now.Members != len(c.replicas)
	}
	switch {
	case c.strategy.Leads:
		return works == 1, nil
	case c.strategy.Static, c.strategy.Labels:
		return works == len(c.replicas), nil
	default:
		return works > 0 && !moves, nil
	}
}

// labelsRest is how long no label must have been written before all objects are listed, to see whether their labels are
// right: looking must not be what is measured.
const labelsRest = 2 * time.Second

// placed waits until all objects have the labels that they should have, and returns when the last one was written.
func (c *crew) placed(ctx context.Context) (at time.Time, err error) {
	var names []string
	for _, r := range c.replicas {
		names = append(names, r.pod)
	}
	ring, written, looked := drainlabel.NewRing(names...), -1, time.Time{}
	err = until(ctx, c.strategy.Name+": objects do not have the right labels", func() (bool, error) {
		all, err := c.total(ctx)
		if err != nil {
			return false, err
		}
		if n := objectWrites(all.Beside); n != written {
			written, at = n, time.Now()
		}
		if time.Since(at) < labelsRest || time.Since(looked) < labelsRest {
			return false, nil
		}
		looked = time.Now()
		wrong, err := sharder(c.name, c.cluster.Namespace).Misplaced(ctx, c.cluster.Client, ring)
		return wrong == 0, err
	})
	return at, err
}

// quieten waits until no process has reconciled, or asked for objects, for a while.
func (c *crew) quieten(ctx context.Context) error {
	last, since := int64(-1), time.Now()
	return until(ctx, c.strategy.Name+" is not quiet", func() (bool, error) {
		all, err := c.total(ctx)
		if err != nil {
			return false, err
		}
		if sum := all.Reconciles + int64(objectRequests(all.Requests)); sum != last {
			last, since = sum, time.Now()
		}
		return time.Since(since) >= c.Quiet, nil
	})
}

// total is what all replicas and the sharder did, also those that ended. Peaks and watches are of those that run.
func (c *crew) total(ctx context.Context) (reading, error) {
	sum := newReading()
	sum.add(c.gone)
	sum.PeakHeap, sum.Watches = 0, 0
	for _, r := range c.processes() {
		now, err := r.reading(ctx)
		if err != nil {
			return sum, err
		}
		sum.add(now)
	}
	return sum, nil
}

// resident is the memory of all processes after a garbage collection, and of the greatest of them; peaks begin anew.
func (c *crew) resident(ctx context.Context) (sum, greatest uint64, err error) {
	for _, r := range c.processes() {
		now, err := ask[uint64](ctx, r, askResident)
		if err != nil {
			return 0, 0, err
		}
		sum += now
		greatest = max(greatest, now)
	}
	return sum, greatest, nil
}
