// Package supervise runs a program on several replicas, each with a share of the objects. A stock program takes its
// share as arguments: a label selector, an ordinal, or namespaces. When the share changes, its process exits before
// another member may work on what it gives up, and is started with the new share (supervisor). Other programs get
// messages about their share, and answer when they have drained what they give up (sharer).
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/slot"
)

// Options configure Run.
type Options struct {
	// Rota are the options of the member. FenceDelay must be set. Run sets Label and LeaveTimeout.
	Rota rota.Options
	// Kinds are the kinds of the objects that the command works on, for selectors and `rota who`.
	Kinds   []schema.GroupKind
	Command *Command
	// StopTimeout is how long the command may take to exit after SIGTERM. Then its process group is killed.
	StopTimeout time.Duration
	// MinUptime is how long a process runs before it gives up slots to other live members, unless this member leaves.
	MinUptime time.Duration
	// Out and Err are the command's output.
	Out, Err *os.File
	// Serve is called with the member before it joins, to serve its metrics. Optional.
	Serve func(*rota.Rota) error
}

// handoverTime is how long a leaving member may take beyond StopTimeout.
const handoverTime = 10 * time.Second

// Run takes part in the rota and runs the command until ctx ends or the command exits. Then it leaves, and returns the
// command's exit code, or 0 if no process ran.
func Run(ctx context.Context, cfg *rest.Config, o Options) (code int, err error) {
	if err := adopt(); err != nil {
		return 0, err
	}
	if o.StopTimeout <= 0 || o.MinUptime < 0 || o.Rota.FenceDelay <= 0 {
		return 0, fmt.Errorf("stop timeout %v, minimal uptime %v, fence delay %v: must be positive", o.StopTimeout,
			o.MinUptime, o.Rota.FenceDelay)
	}
	if o.Rota.Key == slot.KeyUID {
		return 0, errors.New("key UID: objects have no label for it; use Name or Namespace")
	}
	if err := o.Command.check(share{count: max(o.Rota.Slots, 1), key: o.Rota.Key, kinds: o.Kinds}); err != nil {
		return 0, err
	}
	o.Rota.LeaveTimeout = o.StopTimeout + o.Rota.FenceDelay + handoverTime
	if o.Command.Share {
		o.Rota.LeaveTimeout += o.StopTimeout // to drain, and then to exit
	}
	o.Rota.Label = o.Command.Selector || o.Command.Share && len(o.Kinds) > 0
	r, err := rota.New(cfg, o.Rota)
	if err != nil {
		return 0, err
	}
	parts := r.Adapt(adapter.Grant())
	base := share{count: parts.Slots, key: parts.Key, kinds: o.Kinds}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if o.Command.Namespaces {
		if base.namespaces, err = namespaces(life, cfg, r, parts); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	env := processesEnv{
		StopTimeout: o.StopTimeout, FenceDelay: o.Rota.FenceDelay,
		Start: func(l line) program { return start(l, o.Out, o.Err) },
		Late:  parts.Late, Now: func() time.Duration { return time.Since(began) }, Log: o.Rota.Logger,
	}
	if o.Rota.Label {
		for _, kind := range o.Kinds {
			if err := parts.Share.Shard(kind); err != nil {
				return 0, err
			}
		}
	}
	if env.Kinds = base.kindNames(); len(env.Kinds) == 0 {
		env.Kinds = []string{"Process"} // a rota without kinds has nothing to share
	}
	var k keeper
	if o.Command.Share {
		s, err := o.shares(env, base, r)
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.close() }()
		k = s.sharer
	} else {
		k = newSupervisor(o.restarts(env, base))
	}
	parts.Keep(k)
	if o.Serve != nil {
		if err := o.Serve(r); err != nil {
			return 0, err
		}
	}
	return serve(ctx, life, k, r, leave, end)
}

// keeper is a Keeper that runs processes.
type keeper interface {
	controllers.Keeper
	// run starts and stops processes until ctx ends.
	run(ctx context.Context)
	running() []program
	// leave announces that the member leaves. exits returns the exit code of a process that has exited by itself.
	leave()
	exits() <-chan int
}

// restarts returns what a supervisor of the command needs.
func (o *Options) restarts(env processesEnv, base share) supervisorEnv {
	return supervisorEnv{
		processesEnv: env, Separate: o.Command.Ordinals, MinUptime: o.MinUptime,
		Line: func(set slot.Set) (line, bool, error) {
			s := base
			s.slots = set
			var names []string
			if o.Command.Namespaces {
				if names = base.namespaces(set); len(names) == 0 {
					return line{}, false, nil // a program takes no namespaces for all of them
				}
				s.namespaces = func(slot.Set) []string { return names }
			}
			l, err := o.Command.with(s)
			l.names = names
			return l, err == nil, err
		},
	}
}

// sharing is a sharer with its socket.
type sharing struct {
	*sharer
	*socket
}

// shares returns a sharer that serves its socket. The member joins once the command has connected to it.
func (o *Options) shares(env processesEnv, base share, r *rota.Rota) (sharing, error) {
	socket, err := newSocket(context.Background())
	if err != nil {
		return sharing{}, err
	}
	base.socket = socket.Addr().String()
	l, err := o.Command.with(base)
	if err != nil {
		return sharing{}, errors.Join(err, socket.close())
	}
	s := newSharer(sharerEnv{
		processesEnv: env, Line: l, About: base.describe,
		Hello: hello{Type: "hello", Version: protocolVersion, Rota: o.Rota.Name, Namespace: o.Rota.Namespace,
			Slots: int(base.count), Key: base.key.String(), Kinds: base.kindNames()},
		Monotonic: func(late time.Duration) float64 { return (monotonic() + late - env.Late()).Seconds() },
		Sleep:     await.Sleep,
	})
	go socket.serve(s)
	return sharing{s, socket}, r.JoinAfter("the command to connect to "+base.socket, s.first)
}

// serve runs the member and its processes.
func serve(ctx, life context.Context, s keeper, r *rota.Rota, leave, end func()) (code int, err error) {
	passed := make(chan os.Signal, 4)
	passSignals(passed)
	defer signal.Stop(passed)
	var working sync.WaitGroup
	working.Go(func() { s.run(life) })
	working.Go(func() {
		for {
			select {
			case sig := <-passed:
				if sig, ok := sig.(syscall.Signal); ok {
					for _, p := range s.running() {
						p.signal(sig)
					}
				}
			case code = <-s.exits():
				leave()
			case <-ctx.Done():
				s.leave()
				<-life.Done()
				return
			case <-life.Done():
				return
			}
		}
	})
	err = r.Run(ctx)
	end()
	working.Wait()
	select {
	case code = <-s.exits(): // it exited while the member left
	default:
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return code, err
}

// namespaces follows the namespaces of the cluster. The returned function returns those of slots, sorted.
func namespaces(ctx context.Context, cfg *rest.Config, r *rota.Rota, parts adapter.Parts,
) (func(slot.Set) []string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Namespaces().Informer()
	if err := informer.SetTransform(func(obj any) (any, error) {
		if full, ok := obj.(metav1.Object); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: full.GetName()}}, nil
		}
		return obj, nil
	}); err != nil {
		return nil, err
	}
	synced := make(chan struct{})
	if err := r.JoinAfter("the list of namespaces", synced); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			close(synced)
		}
	}()
	return func(set slot.Set) []string {
		var out []string
		for _, name := range informer.GetStore().ListKeys() {
			if set.Has(parts.Slots.Of(parts.Key.Hash(name, "", ""))) {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}, nil
}
