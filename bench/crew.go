package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

const (
	// pollEvery is the resolution of times.
	pollEvery = 50 * time.Millisecond
	// settleLimit bounds each wait.
	settleLimit = 30 * time.Minute
	// endLimit is how long a replica may take to stop.
	endLimit = 2 * time.Minute
)

// crew is the replicas of one strategy's operator, and its sharder.
type crew struct {
	*runner
	strategy Strategy
	name     string // of the rota, the leader's Lease or the ring
	stamp    bool
	size     int // replicas to begin with
	replicas []*replica
	sharding *replica             // nil: there is none
	labels   *drainlabel.Sharder  // nil: there is none
	made     int                  // replicas that were started
	gone     map[*replica]reading // what those that ended had done
	// labelled is how many labels were written, labelledAt when the last one was, and allWork since when all shards work.
	labelled            int
	labelledAt, allWork time.Time
	// revive starts a replica again that has ended by itself; nil: that is a failure.
	revive func(*replica) error
	// profiles is the beginning of the names of profiles; "": there are none now. profiled is how many there were.
	profiles string
	profiled int
}

// replica is a process that runs the operator, or a sharder.
type replica struct {
	*process.Process
	pod    string
	number int
}

// ended says that the process is no more.
func (r *replica) ended() bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// ask asks a question and decodes the answer into out.
func (r *replica) ask(ctx context.Context, question string, out any) error {
	return r.asks(ctx, question, "", out)
}

// asks is ask for a question about something.
func (r *replica) asks(ctx context.Context, question, about string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := r.Ask(ctx, strings.TrimSpace(question+" "+about), question)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), out)
}

// open starts the sharder, if the strategy has one.
func (c *crew) open(ctx context.Context) error {
	c.gone = map[*replica]reading{}
	if !c.strategy.Labels {
		return nil
	}
	port, err := process.FreePort(ctx)
	if err != nil {
		return err
	}
	c.labels = c.Workload.sharder(c.name, c.cluster.Namespace)
	c.sharding, err = c.process(ctx, c.name+"-sharder", operatorConfig{Port: port})
	return err
}

// close ends all processes.
func (c *crew) close(ctx context.Context) error {
	for _, r := range c.processes() {
		r.Kill()
	}
	if c.labels == nil {
		return nil
	}
	return c.labels.Uninstall(context.WithoutCancel(ctx), c.cluster.Client)
}

// processes are the replicas that run, and the sharder.
func (c *crew) processes() []*replica {
	all := slices.Clone(c.replicas)
	if c.sharding != nil {
		all = append(all, c.sharding)
	}
	return all
}

// process starts a process. It returns when that answers, and has not begun to work.
func (c *crew) process(ctx context.Context, pod string, config operatorConfig) (*replica, error) {
	config.Strategy, config.Workload, config.Name = c.strategy.Name, c.Workload.Name, c.name
	config.Kubeconfig, config.Strip, config.Poll = c.cluster.Plane.Kubeconfig(), c.Strip, c.poll
	config.Profile = c.profileOf(pod)
	config.Namespace, config.Pages, config.Pod, config.Stamp = c.cluster.Namespace, c.dir, pod, c.stamp
	// All replicas have the same build: Rota treats a member whose build is that of a leaver in a special way.
	p, err := process.Start(process.Options{
		Name: pod, Command: c.Command, Log: filepath.Join(c.dir, pod+".log"), Answers: true,
		Variable: EnvOperator, Config: config,
		Env: append([]string{
			"POD_NAME=" + pod, "POD_UID=uid-" + pod, "CONTAINER_NAME=manager", "POD_NAMESPACE=" + c.cluster.Namespace,
		}, c.Workload.Env...),
	})
	if err != nil {
		return nil, err
	}
	r := &replica{Process: p, pod: pod, number: config.Number}
	if err := r.ask(ctx, askReading, &reading{}); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// pod is the name of the next replica to be made, which has a number. With a static number, that is in the name.
func (c *crew) pod(number int) string {
	if c.strategy.Static {
		return fmt.Sprintf("%s-%d", c.name, number)
	}
	return fmt.Sprintf("%s-%d", c.name, c.made)
}

// start starts a replica of as many as there are to be.
func (c *crew) start(ctx context.Context, number, of int) error {
	pod := c.pod(number)
	c.made++
	return c.startAs(ctx, pod, number, of)
}

func (c *crew) startAs(ctx context.Context, pod string, number, of int) error {
	r, err := c.process(ctx, pod, operatorConfig{Number: number, Of: of})
	if err == nil {
		c.replicas = append(c.replicas, r)
	}
	return err
}

// end notes what a replica had done, and ends it: by SIGTERM, or by SIGKILL if it crashes.
func (c *crew) end(ctx context.Context, r *replica, crashes bool) error {
	if err := c.note(ctx, r); err != nil {
		return err
	}
	if crashes {
		if err := c.profileTo(ctx, r, ""); err != nil { // else it would be empty
			return err
		}
		r.Kill()
		return nil
	}
	if err := r.End(syscall.SIGTERM); err != nil {
		return err
	}
	return r.leave(ctx)
}

// note notes what a replica had done that is about to end.
func (c *crew) note(ctx context.Context, r *replica) error {
	var last reading
	if err := r.ask(ctx, askReading, &last); err != nil {
		return err
	}
	c.gone[r] = last
	c.replicas = slices.DeleteFunc(c.replicas, func(other *replica) bool { return other == r })
	return nil
}

// leave waits until a replica has ended.
func (r *replica) leave(ctx context.Context) error {
	select {
	case <-r.Done():
		return r.Failure()
	case <-time.After(endLimit):
		return fmt.Errorf("%s: %s", r.pod, r.Lingers())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// working returns the replica that leads, or one of those that work.
func (c *crew) working(ctx context.Context) (*replica, error) {
	for _, r := range c.replicas {
		var now reading
		if err := r.ask(ctx, askReading, &now); err != nil {
			return nil, err
		}
		if now.Working {
			return r, nil
		}
	}
	return nil, errors.New("no replica works")
}

// readings are those of the replicas that run.
func (c *crew) readings(ctx context.Context) ([]reading, error) {
	out := make([]reading, len(c.replicas))
	for i, r := range c.replicas {
		if err := r.ask(ctx, askReading, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// settled reports whether the work is distributed.
func (c *crew) settled(ctx context.Context) (bool, error) {
	if c.revive != nil {
		for _, r := range slices.Clone(c.replicas) {
			if !r.ended() {
				continue
			}
			if err := c.revive(r); err != nil {
				return false, err
			}
		}
	}
	now, err := c.readings(ctx)
	switch {
	case err != nil && c.revive != nil && slices.ContainsFunc(c.replicas, (*replica).ended):
		return false, nil
	case err != nil:
		return false, err
	}
	works := 0
	for _, r := range now {
		if r.Working && r.Reconciles > 0 {
			works++
		}
	}
	switch {
	case c.strategy.Leads:
		return works == 1, nil
	case c.strategy.Labels && works == len(now):
		return c.placed(ctx)
	case c.strategy.Static, c.strategy.Labels:
		return works == len(now), nil
	default:
		moves := func(r reading) bool { return !r.Settled || r.Members != len(now) }
		return works > 0 && !slices.ContainsFunc(now, moves), nil
	}
}

// placed reports whether all objects have the labels that they should have. It lists them all, so it does only once
// nobody has written a label for a while: what looks must not be what is measured.
func (c *crew) placed(ctx context.Context) (bool, error) {
	if c.allWork.IsZero() {
		c.allWork = time.Now()
	}
	all, err := c.total(ctx)
	if err != nil {
		return false, err
	}
	if n := c.objectWrites(all.Beside); n != c.labelled {
		c.labelled, c.labelledAt = n, time.Now()
	}
	if time.Since(c.labelledAt) < labelsRest {
		return false, nil
	}
	var names []string
	for _, r := range c.replicas {
		names = append(names, r.pod)
	}
	n, err := c.labels.Misplaced(ctx, c.cluster.Client, names)
	if n > 0 {
		c.labelledAt = time.Now() // look again after a while
	}
	return n == 0, err
}

// labelsRest is how long no label must have been written before it is looked whether they are right.
const labelsRest = 2 * time.Second

// settle waits until the work is distributed, and returns since when it is.
func (c *crew) settle(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit,
		fmt.Errorf("%s: the work is not distributed after %v", c.strategy.Name, settleLimit))
	defer cancel()
	c.labelledAt, c.allWork = time.Now(), time.Time{}
	for {
		ok, err := c.settled(ctx)
		switch {
		case err != nil:
			return time.Time{}, errors.Join(err, context.Cause(ctx))
		case ok && c.strategy.Labels && c.allWork.After(c.labelledAt):
			return c.allWork, nil
		case ok && c.strategy.Labels:
			return c.labelledAt, nil
		case ok:
			return time.Now(), nil
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// quieten waits until no process has reconciled, or asked for sharded objects, for a while.
func (c *crew) quieten(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit,
		fmt.Errorf("%s: not quiet after %v", c.strategy.Name, settleLimit))
	defer cancel()
	last, since := int64(-1), time.Now()
	for time.Since(since) < c.Quiet {
		all, err := c.total(ctx)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if sum := all.Reconciles + int64(c.objectRequests(all.Requests)); sum != last {
			last, since = sum, time.Now()
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// total is what all replicas and the sharder have done, also those that have ended. PeakHeap and Watches are the sums
// of those that run.
func (c *crew) total(ctx context.Context) (sum reading, err error) {
	sum.Requests, sum.Beside = map[string]int{}, map[string]int{}
	for _, r := range c.processes() {
		var now reading
		if err := r.ask(ctx, askReading, &now); err != nil {
			return sum, err
		}
		sum.PeakHeap += now.PeakHeap
		sum.Watches += now.Watches
		sum.add(now)
	}
	for _, was := range c.gone {
		sum.add(was)
	}
	return sum, nil
}

func (r *reading) add(other reading) {
	r.CPUSeconds += other.CPUSeconds
	r.Bytes += other.Bytes
	r.Reconciles += other.Reconciles
	for k, n := range other.Requests {
		r.Requests[k] += n
	}
	for k, n := range other.Beside {
		r.Beside[k] += n
	}
}

// resident is the memory of all processes after a garbage collection, and of the greatest of them; peaks begin anew.
func (c *crew) resident(ctx context.Context) (sum, greatest uint64, err error) {
	for _, r := range c.processes() {
		var now uint64
		if err := r.ask(ctx, askResident, &now); err != nil {
			return 0, 0, err
		}
		sum += now
		greatest = max(greatest, now)
		if err := r.ask(ctx, askReset, &struct{}{}); err != nil {
			return 0, 0, err
		}
	}
	return sum, greatest, nil
}
