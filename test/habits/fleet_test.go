package habits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

const (
	// leaseDuration is that of members and of stock leaders. Busy machines take seconds for a renewal.
	leaseDuration = 10 * time.Second
	// patience bounds every wait: it only has to be longer than any machine takes.
	patience = 3 * time.Minute
)

// fleet are the replicas of one operator in one namespace.
type fleet struct {
	t         *testing.T
	namespace string
	sharded   bool
	build     func(*Process) error
	replicas  []*replica
	started   int
	log       protocol
}

// protocol are the last lines that replicas logged. A manager leaves goroutines behind that log when the test has ended.
type protocol struct {
	once  sync.Once
	mu    sync.Mutex
	lines []string
}

const protocolLines = 300

func (p *protocol) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines = append(p.lines, line); len(p.lines) > 2*protocolLines {
		p.lines = p.lines[protocolLines:]
	}
}

// in shows the lines at the end of a test that failed.
func (p *protocol) in(t *testing.T) {
	p.once.Do(func() {
		t.Cleanup(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if t.Failed() {
				t.Log(strings.Join(p.lines[max(0, len(p.lines)-protocolLines):], "\n"))
			}
		})
	})
}

type replica struct {
	name    string
	manager manager.Manager
	stop    context.CancelFunc
	unplug  context.CancelFunc
	done    chan error
}

// start starts one more replica.
func (f *fleet) start() {
	f.t.Helper()
	f.started++
	name := fmt.Sprintf("replica-%d", f.started)
	plugged, unplug := context.WithCancel(context.Background())
	plug := func(cfg *rest.Config) *rest.Config {
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = -1, -1
		cfg.Wrap(plugInto(plugged))
		return cfg
	}
	cfg := plug(controlplane.For(f.t).Config())
	o := ctrl.Options{
		Logger: f.logger(name), Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{f.namespace: {}}},
		Controller: config.Controller{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 2,
		},
	}
	r := &replica{name: name, unplug: unplug, done: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	var err error
	if f.sharded {
		r.manager, err = f.member(cfg, name, o)
	} else {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "habits", f.namespace
		o.LeaderElectionReleaseOnCancel = true
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = ptr.To(leaseDuration), ptr.To(leaseDuration*4/5),
			ptr.To(leaseDuration/20)
		// With keys in it, a priority queue may hang at the end: kubernetes-sigs/controller-runtime#3538.
		o.Controller.UsePriorityQueue = ptr.To(false)
		r.manager, err = ctrl.NewManager(cfg, o)
	}
	if err == nil {
		err = f.build(&Process{r.manager, f.namespace, plug})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.replicas = append(f.replicas, r)
	f.t.Cleanup(func() { f.end(r) })
	go func() { r.done <- r.manager.Start(ctx) }()
}

func (f *fleet) member(cfg *rest.Config, pod string, o ctrl.Options) (*ctrlrt.Manager, error) {
	r, err := rota.New(cfg, rota.Options{
		Name: "habits", Namespace: f.namespace, Logger: o.Logger, Identity: rota.Identity{Pod: pod},
		LeaseDuration: leaseDuration, RetryPeriod: leaseDuration / 20, LabelNamespaces: []string{f.namespace},
	})
	if err != nil {
		return nil, err
	}
	return ctrlrt.NewManager(cfg, r, o)
}

// logger returns the log of a replica, which is shown if the test fails. What a replica that was killed says does not
// matter.
func (f *fleet) logger(name string) logr.Logger {
	f.log.in(f.t)
	return funcr.New(func(prefix, args string) { f.log.add(prefix + " " + args) },
		funcr.Options{LogTimestamp: true}).WithName(name)
}

// leave ends the oldest replica as SIGTERM does.
func (f *fleet) leave() {
	f.t.Helper()
	r := f.oldest()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil && !f.lostLead(err) {
			f.t.Errorf("%s ended: %v", r.name, err)
		}
		r.done <- err
	case <-time.After(patience):
		f.t.Fatalf("%s does not end", r.name)
	}
}

// kill ends the oldest replica as SIGKILL does, as far as others see: no request of it gets through from now on.
func (f *fleet) kill() {
	f.t.Helper()
	r := f.oldest()
	r.unplug()
	r.stop()
}

func (f *fleet) oldest() *replica {
	r := f.replicas[0]
	f.replicas = f.replicas[1:]
	return r
}

// alive fails the test if a replica has ended by itself. A stock one does that if it cannot renew its Lease in time, as
// on a busy machine. It is started anew, as its container would be.
func (f *fleet) alive() {
	f.t.Helper()
	for _, r := range slices.Clone(f.replicas) {
		select {
		case err := <-r.done:
			r.done <- err
			if !f.lostLead(err) {
				f.t.Fatalf("%s ended by itself: %v", r.name, err)
			}
			r.stop()
			r.unplug()
			f.replicas = slices.DeleteFunc(f.replicas, func(other *replica) bool { return other == r })
			f.start()
		default:
		}
	}
}

// lostLead recognizes the error of a stock manager that lost its Lease.
func (f *fleet) lostLead(err error) bool {
	return !f.sharded && err != nil && strings.Contains(err.Error(), "leader election lost")
}

func (f *fleet) end(r *replica) {
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(patience):
		f.t.Errorf("%s does not end", r.name)
	}
	r.unplug()
}
