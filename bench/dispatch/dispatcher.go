package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/workers"
	"github.com/rota-dev/rota/test/process"
)

// EnvDispatcher is the environment variable that carries a dispatcher's configuration.
const EnvDispatcher = "ROTA_DISPATCHBENCH_DISPATCHER"

type dispatcherConfig struct {
	Kubeconfig, Namespace, Name, Pod string
	// TokenFile has the token that it shows to others, and Self is its user.
	TokenFile, Self string
}

const audience = "rota.dev/dispatch"

// figures are what a dispatcher has used.
type figures struct {
	// Live is the heap after a garbage collection, in bytes.
	Live uint64
	// Peak is the largest heap since the last figures, garbage included, in bytes.
	Peak uint64
	// CPU is processor time since the start.
	CPU time.Duration
}

// DispatcherMain runs a dispatcher. It returns the exit status.
func DispatcherMain() int {
	var c dispatcherConfig
	var peak atomic.Uint64
	process.Answer(0, func(line string) string {
		if line != "figures" {
			return ""
		}
		f := figures{Peak: peak.Load(), CPU: cpu()}
		runtime.GC()
		runtime.GC() // pools release memory at the second one
		f.Live = heap()
		peak.Store(f.Live)
		text, _ := json.Marshal(f)
		return "figures " + string(text)
	})
	return process.Main(EnvDispatcher, "dispatchbench", &c, func(ctx context.Context) error {
		go func() {
			for await.Sleep(ctx, 5*time.Millisecond) == nil {
				peak.Store(max(peak.Load(), heap()))
			}
		}()
		return c.run(ctx)
	})
}

// heap returns the bytes of objects, and of garbage that has not been collected.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// cpu returns the processor time that this process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only a bad argument can cause this
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c *dispatcherConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	r, err := rota.New(cfg, rota.Options{
		Name: c.Name, Namespace: c.Namespace, Identity: rota.Identity{Pod: c.Pod}, Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	self := workers.NewProcess()
	kinds := []keeper.Kind{{
		Kind: schema.GroupKind{Kind: "ConfigMap"}, Namespaces: []string{c.Namespace}, Selector: "bench=yes",
	}}
	d, err := keeper.New(cfg, r, keeper.Options{Kinds: kinds, Address: self.At(url), Logger: ctrl.Log})
	if err != nil {
		return err
	}
	guard, err := access.New(cfg, access.Options{
		Audience: audience, Limits: access.Limits{Rate: 1e6}, Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	reports, err := workers.Reports(cfg, r.Name(), r.Adapt(adapter.Grant()).Table)
	if err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	peers, err := transport.NewBearerAuthWithRefreshRoundTripper("", c.TokenFile, base)
	if err != nil {
		return err
	}
	f, err := workers.New(workers.Options{
		Dispatcher: d, Kinds: kinds, Guard: guard, Process: self, URL: url, Self: c.Self, Reports: reports,
		Client: &http.Client{Transport: peers}, Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var running sync.WaitGroup
	running.Go(func() { d.Run(life) })
	running.Go(f.Run)
	running.Go(func() { _ = server.Serve(listener) })
	if _, err := fmt.Fprintln(os.Stdout, "serving", url); err != nil {
		return err
	}
	err = r.Run(ctx)
	end()
	_ = server.Close()
	running.Wait()
	f.Wait()
	return err
}
