package dispatch

import (
	"context"
	_ "embed" // the worker in Python
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/clients/python"
	website "github.com/rota-dev/rota/examples/website/python"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/process"
)

const (
	// ports is how many dispatchers there may be at a time. Workers know the addresses of all, as if of a Service.
	ports = 6
	// kind is the kind of a Website.
	kind = "Website.web.example.com"
	// concurrency is how many Websites a worker reconciles at a time.
	concurrency = 8
	// pause is what the work on a Website takes beside its requests.
	pause = 300 * time.Millisecond
)

//go:embed demo_worker.py
var workerInPython []byte

// configure says what the processes of both fleets are.
func (e *engine) configure(ctx context.Context) error {
	for range ports {
		port, err := process.FreePort(ctx)
		if err != nil {
			return err
		}
		e.ports = append(e.ports, port)
	}
	as := func(account string) func(context.Context, string) (rig.Identity, error) {
		return func(context.Context, string) (rig.Identity, error) { return e.identity(account), nil }
	}
	e.Fleet.Name, e.Fleet.Identify, e.Fleet.Config = "dispatcher", as(dispatcherAccount), e.dispatcher
	e.Fleet.Operator.Namespace = tierNamespace
	e.Workers.Command, e.Workers.Identify, e.Workers.Config = e.Command, as(workerAccount), e.worker
	return errors.Join(e.grant(ctx), e.certify(), e.authenticate(ctx), e.findPython(ctx))
}

func url(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// dispatcher returns the configuration of a dispatcher. It reuses the port of a dispatcher that ended long ago.
func (e *engine) dispatcher(r *rig.Replica, o *rig.Operator) (string, any) {
	port := e.ports[r.Number%ports]
	path := e.path(r.Pod + ".yaml")
	text, err := yaml.Marshal(map[string]any{
		"name": tierName, "namespace": tierNamespace, "slots": int(e.Slots),
		"kinds":         []map[string]any{{"kind": kind, "namespaces": []string{e.Cluster.Sites}}},
		"leaseDuration": e.LeaseDuration.String(), "takes": map[string]any{"length": e.o.TakeLength.String()},
		"tokenFile": e.path(dispatcherAccount + dispatchToken), "metrics": "127.0.0.1:0",
		"rememberNames": !e.o.Forget,
		"server": map[string]any{
			"listen": fmt.Sprintf("127.0.0.1:%d", port), "advertise": url(port), "tls": map[string]any{
				"certFile": e.path(certFile), "keyFile": e.path(keyFile), "caFile": e.path(certFile),
				"serverName": serverName,
			},
		},
	})
	if err = errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		e.Log("%v", err) // the dispatcher will say that its configuration is missing
	}
	return Env, part{Config: path, Kubeconfig: o.Kubeconfig, Verbose: e.Verbose}
}

// worker is the configuration of a worker, which begins with another dispatcher than the one before.
func (e *engine) worker(r *rig.Replica, o *rig.Operator) (string, any) {
	p := part{Kubeconfig: o.Kubeconfig, Verbose: e.Verbose, Worker: workerPart{
		Name: r.Pod, TokenFile: e.path(workerAccount + dispatchToken), CAFile: e.path(certFile), Kind: kind,
		Concurrency: concurrency, Length: e.o.TakeLength.Seconds(), Pause: pause.Seconds(),
		Journal: o.Journal, Pages: e.Pages.Dir,
		Server: e.Cluster.Config.Host, APIToken: e.path(workerAccount + apiToken), APICA: e.path(apiCA),
	}}
	for i := range e.ports {
		p.Worker.URLs = append(p.Worker.URLs, url(e.ports[(i+r.Number)%ports]))
	}
	return Env, p
}

// startWorker starts a worker. Every second one in Go is of Options.Release.
func (e *engine) startWorker(ctx context.Context, inPython bool) error {
	command := e.Command
	switch {
	case inPython:
		command = []string{e.python, e.path("demo_worker.py")}
	case len(e.Workers.All())%2 == 1:
		command = e.other()
	}
	w, err := e.Workers.Start(ctx, command, nil)
	if inPython && err == nil {
		e.pythons = append(e.pythons, w)
	}
	return err
}

// leastPython is the oldest version that the worker in Python runs with.
const leastPython = "import sys; sys.exit(sys.version_info < (3, 9))"

// findPython looks for an interpreter, and writes the programs for it.
func (e *engine) findPython(ctx context.Context) error {
	path, err := exec.LookPath(e.o.Python)
	if err == nil {
		err = exec.CommandContext(ctx, path, "-c", leastPython).Run()
	}
	if err != nil {
		e.Log("There is no %s from 3.9 on (%s): all workers are in Go.", e.o.Python, strings.TrimSpace(err.Error()))
		return ctx.Err()
	}
	e.python = path
	for name, text := range map[string][]byte{
		"demo_worker.py": workerInPython, "website.py": website.Website, "rota_dispatch.py": python.Client,
	} {
		if err := os.WriteFile(e.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) path(name string) string { return filepath.Join(e.Dir, name) }
