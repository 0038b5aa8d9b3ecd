package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Fleet starts the replicas of an operator and ends them. Set its fields before the first Start; its methods may be
// called concurrently.
type Fleet struct {
	// Dir gets journals, logs and kubeconfigs.
	Dir string
	// Name begins the names of the Pods; "" is "web".
	Name string
	// Command is the program that calls OperatorMain, with its arguments.
	Command []string
	// Operator is what all replicas have in common.
	Operator Operator
	// Config, unless nil, returns what a process gets in place of its Operator, and in which environment variable.
	Config func(r *Replica, o *Operator) (variable string, config any)
	// Restart has a process that ended started again in its Pod, as a kubelet does, until the replica is told to end.
	Restart bool
	// Identify returns how a new replica reaches the API server.
	Identify func(ctx context.Context, pod string) (Identity, error)

	mu  sync.Mutex
	all []*Replica
}

// Start starts a replica in a new Pod. change, unless it is nil, changes its configuration, and command, unless it is
// empty, replaces the fleet's.
func (f *Fleet) Start(ctx context.Context, command []string, change func(*Operator)) (*Replica, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := len(f.all) + 1
	pod := fmt.Sprintf("%s-%d", cmp.Or(f.Name, "web"), number)
	id, err := f.Identify(ctx, pod)
	if err != nil {
		return nil, err
	}
	r := &Replica{Pod: pod, Number: number, Operator: f.Operator, Proxy: id.Proxy, fleet: f, command: command}
	if len(command) == 0 {
		r.command = f.Command
	}
	if change != nil {
		change(&r.Operator)
	}
	r.Operator.Kubeconfig = filepath.Join(f.Dir, pod+".kubeconfig")
	container := ""
	if id.UID != "" {
		container = "manager"
	}
	r.env = []string{
		"POD_NAME=" + pod, "POD_UID=" + id.UID, "CONTAINER_NAME=" + container, "POD_NAMESPACE=" + r.Operator.Namespace,
	}
	if err := errors.Join(WriteKubeconfig(r.Operator.Kubeconfig, id.Config), r.start()); err != nil {
		return nil, err
	}
	f.all = append(f.all, r)
	return r, nil
}

// All returns the replicas that ever were, oldest first.
func (f *Fleet) All() []*Replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// Live returns the replicas that are meant to be there, oldest first.
func (f *Fleet) Live() []*Replica {
	return slices.DeleteFunc(f.All(), func(r *Replica) bool { return !r.Live() })
}

// Pods returns the names of the live replicas.
func (f *Fleet) Pods() (pods []string) {
	for _, r := range f.Live() {
		pods = append(pods, r.Pod)
	}
	return pods
}

// Lingers names a replica that was told to end and has not, or returns "".
func (f *Fleet) Lingers() string {
	for _, r := range f.All() {
		if problem := r.Lingers(); problem != "" {
			return problem
		}
	}
	return ""
}

// Fallen returns the first failure of a process that ended unexpectedly.
func (f *Fleet) Fallen() error {
	for _, r := range f.All() {
		if err := r.Process().Failure(); err != nil && !r.MayEnd.Load() {
			return err
		}
	}
	return nil
}

// endLimit is how long replicas may take to end.
const endLimit = 40 * time.Second

// Stop ends the live replicas with SIGTERM, and with SIGKILL those that take too long.
func (f *Fleet) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	live := f.Live()
	for _, r := range live {
		if err := r.Leave(); err != nil {
			return err
		}
	}
	for _, r := range live {
		p := r.Process()
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("replica %s did not end within %v of SIGTERM:\n%s", r.Pod, endLimit, p.Tail())
		}
		if err := p.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// Close ends every process at once.
func (f *Fleet) Close() {
	for _, r := range f.All() {
		r.remove()
	}
}

// Records are what the processes of a fleet left.
type Records struct {
	// Reconciles has the reconciles of Websites, Duties the runs of duties.
	Reconciles, Duties []journal.Reconcile
	// Ended is when processes ended.
	Ended map[string]time.Duration
	// Pauses are the times for which processes were stopped.
	Pauses []judge.Pause
}

// Records reads the journals.
func (f *Fleet) Records() (*Records, error) {
	out := &Records{Ended: map[string]time.Duration{}}
	for _, r := range f.All() {
		list, err := r.Reconciles()
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			if one.Key.Namespace == dutyNamespace {
				out.Duties = append(out.Duties, one)
			} else {
				out.Reconciles = append(out.Reconciles, one)
			}
		}
		for _, l := range r.all() {
			if at, over := l.Ended(); over {
				out.Ended[l.name] = at
			}
		}
		r.mu.Lock()
		out.Pauses = append(out.Pauses, r.pauses...)
		r.mu.Unlock()
	}
	return out, nil
}
