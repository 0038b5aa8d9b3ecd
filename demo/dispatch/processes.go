package dispatch

import (
	"context"
	_ "embed" // the worker in Python
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/clients/python"
	website "github.com/rota-dev/rota/examples/website/python"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

const (
	// ports is how many dispatchers there may be at a time. Workers know the addresses of all, as if of a Service.
	ports = 6
	// kind is that of the Websites.
	kind = "Website.web.example.com"
	// concurrency is how many Websites a worker reconciles at a time.
	concurrency = 8
	// pause is what the work on a Website takes beside its requests.
	pause = 300 * time.Millisecond
)

//go:embed demo_worker.py
var workerInPython []byte

// dispatcher is a process of one.
type dispatcher struct {
	*process.Process
	pod  string
	port int
}

// worker is a process of one.
type worker struct {
	*process.Process
	name   string
	python bool

	reading sync.Mutex
	journal *journal.Reader
}

// takes returns those in the journal so far.
func (w *worker) takes() ([]journal.Reconcile, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	list, err := w.journal.Read()
	return slices.Clone(list), err
}

// reserve returns ports that are free now.
func reserve(ctx context.Context) (out []int, err error) {
	for range ports {
		port, err := process.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, port)
	}
	return out, nil
}

func url(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// startDispatcher starts a dispatcher at a port that no other one has.
func (e *engine) startDispatcher() (*dispatcher, error) { return e.startDispatcherOf(e.o.Command) }

// other starts a process of Options.Release; where there is none, of this one.
func (e *engine) other() []string {
	if e.o.Release == "" {
		return e.o.Command
	}
	return []string{e.o.Release, Argument}
}

// startDispatcherOf is startDispatcher with another program.
func (e *engine) startDispatcherOf(command []string) (*dispatcher, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	free := slices.Clone(e.ports)
	for _, d := range e.dispatchers {
		if _, ended := d.Ended(); !ended {
			free = slices.DeleteFunc(free, func(p int) bool { return p == d.port })
		}
	}
	if len(free) == 0 {
		return nil, fmt.Errorf("%d dispatchers run, and there are no more addresses", ports)
	}
	pod, port := fmt.Sprintf("dispatcher-%d", len(e.dispatchers)+1), free[0]
	path := filepath.Join(e.dir, pod+".yaml")
	text, err := yaml.Marshal(map[string]any{
		"name": tierName, "namespace": e.cluster.Namespace, "slots": int(e.o.Slots),
		"kinds":         []map[string]any{{"kind": kind, "namespaces": []string{e.cluster.Sites}}},
		"leaseDuration": e.o.LeaseDuration.String(), "takes": map[string]any{"length": e.o.TakeLength.String()},
		"tokenFile": e.cluster.path(dispatcherAccount + dispatchToken), "metrics": "127.0.0.1:0",
		"rememberNames": !e.o.Forget,
		"server": map[string]any{
			"listen": fmt.Sprintf("127.0.0.1:%d", port), "advertise": url(port), "tls": map[string]any{
				"certFile": e.cluster.path(certFile), "keyFile": e.cluster.path(keyFile), "caFile": e.cluster.path(certFile),
				"serverName": serverName,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start(process.Options{
		Name: "dispatcher " + pod, Command: command, Log: filepath.Join(e.dir, pod+".log"), Variable: Env,
		Config: part{Config: path, Kubeconfig: e.cluster.path(dispatcherAccount + kubeconfig), Verbose: e.o.Verbose},
		Env:    []string{"POD_NAME=" + pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE=" + e.cluster.Namespace},
	})
	if err != nil {
		return nil, err
	}
	d := &dispatcher{p, pod, port}
	e.dispatchers = append(e.dispatchers, d)
	return d, nil
}

// startWorker starts a worker, which begins with another dispatcher than the one before.
func (e *engine) startWorker(python bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.workers)
	name := fmt.Sprintf("worker-%d", n+1)
	account := func(file string) string { return e.cluster.path(workerAccount + file) }
	p := part{Kubeconfig: account(kubeconfig), Verbose: e.o.Verbose, Worker: workerPart{
		Name: name, TokenFile: account(dispatchToken), CAFile: e.cluster.path(certFile), Kind: kind,
		Concurrency: concurrency, Length: e.o.TakeLength.Seconds(), Pause: pause.Seconds(),
		Journal: filepath.Join(e.dir, name+".journal"), Pages: e.pages.Dir,
		Server: e.cluster.Config.Host, APIToken: account(apiToken), APICA: e.cluster.path(apiCA),
	}}
	for i := range e.ports {
		p.Worker.URLs = append(p.Worker.URLs, url(e.ports[(i+n)%len(e.ports)]))
	}
	command := e.o.Command
	if n%2 == 1 {
		command = e.other()
	}
	if python {
		command = []string{e.o.Python, e.cluster.path("demo_worker.py")}
	}
	run, err := process.Start(process.Options{
		Name: name, Command: command, Log: filepath.Join(e.dir, name+".log"), Variable: Env, Config: p,
	})
	if err != nil {
		return err
	}
	w := &worker{Process: run, name: name, python: python, journal: journal.NewReader(p.Worker.Journal, name)}
	e.workers = append(e.workers, w)
	return nil
}

// leastPython is the oldest version that the worker in Python runs with.
const leastPython = "import sys; sys.exit(sys.version_info < (3, 9))"

// findPython looks for an interpreter, and writes the programs for it. Without one Options.Python is empty.
func (e *engine) findPython(ctx context.Context) error {
	name := e.o.Python
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		err = exec.CommandContext(ctx, path, "-c", leastPython).Run()
	}
	if e.o.Python = path; err != nil {
		e.o.Python = ""
		e.log("There is no %s from 3.9 on (%s): all workers are in Go.", name, strings.TrimSpace(err.Error()))
		return ctx.Err()
	}
	for name, text := range map[string][]byte{
		"demo_worker.py": workerInPython, "website.py": website.Website, "rota_dispatch.py": python.Client,
	} {
		if err := os.WriteFile(e.cluster.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
