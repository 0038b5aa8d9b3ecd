// Package controlplane runs a real Kubernetes control plane for tests, demos and measurements. etcd and the API server
// are processes of their own on free loopback ports, ready in a few seconds. They and their files are gone after Stop,
// or when the process that started them dies.
//
// A test package shares one control plane, and each test has a namespace:
//
//	func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }
//
//	func TestSomething(t *testing.T) {
//		config := controlplane.For(t).Config()
//		namespace := controlplane.Namespace(t)
//		...
//	}
//
// Tests that stop servers or need other options start one of their own.
//
// It is not a cluster: nothing schedules or runs pods. Without the option ControllerManager nothing is
// garbage-collected, a deleted namespace stays, and the aggregated roles view, edit and admin are empty.
package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/controlplane/supervisor"
)

// A ControlPlane is running. Its methods may be called concurrently.
type ControlPlane struct {
	info   supervisor.Info
	config *rest.Config
	child  *child
	stop   func() error

	mu   sync.Mutex // one command at a time
	pids map[string]int
}

// Start runs a control plane and returns when it is ready, usually after two or three seconds. If its programs are
// missing, Start downloads or builds them first, which may take minutes, and shows its progress on standard error:
// see assets.Find. ctx bounds only the start.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	folder, err := assets.Find(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	if o.ControllerManager {
		if _, err := folder.ControllerManager(ctx, os.Stderr); err != nil {
			return nil, err
		}
	}
	child, err := startChild(append([]string{"up", "--json", "--assets=" + string(folder)}, o.args()...), o.Env, o.Stderr)
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	c := &ControlPlane{child: child, stop: sync.OnceValue(child.end)}
	if err := c.ready(ctx); err != nil {
		_ = c.Stop()
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) ready(ctx context.Context) error {
	var line []byte
	var ok bool
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case line, ok = <-c.child.lines:
		if !ok {
			return c.child.death()
		}
	}
	if err := json.Unmarshal(line, &c.info); err != nil {
		return fmt.Errorf("read what rota-kube says: %w: %s", err, line)
	}
	c.pids = c.info.PIDs
	config, err := clientcmd.BuildConfigFromFlags("", c.info.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // client-go would slow down a busy test
	c.config = config
	return nil
}

// Stop ends all servers and removes their folder. Calling it again returns what the first call did: an error if the
// control plane had died before.
func (c *ControlPlane) Stop() error { return c.stop() }

// Done is closed when the control plane has ended, by Stop or because one of its servers died; then Stop returns the
// reason.
func (c *ControlPlane) Done() <-chan struct{} { return c.child.done }

// Config returns a fresh copy of an administrator's configuration for the first API server, without client-side rate
// limiting.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor is Config for the i-th API server, counted from 0.
func (c *ControlPlane) ConfigFor(i int) *rest.Config {
	config := c.Config()
	config.Host = c.info.APIServers[i]
	return config
}

// Kubeconfig returns the path of the administrator's kubeconfig file, which exists until Stop. Every API server beyond
// the first has a context of its own, rota-kube-1 for the second.
func (c *ControlPlane) Kubeconfig() string { return c.info.Kubeconfig }

// APIServers returns the URLs of the API servers.
func (c *ControlPlane) APIServers() []string { return slices.Clone(c.info.APIServers) }

// Etcd returns the client URL, plain HTTP, of etcd.
func (c *ControlPlane) Etcd() string { return c.info.Etcd }

// AuditLogs returns one path per API server, or none without Audit. A line is written before its response ends, so
// whoever has read a response (over HTTP/2, as client-go does) finds its line. Watches have one line when they begin
// and one when they end. The files are gone after Stop.
func (c *ControlPlane) AuditLogs() []string { return slices.Clone(c.info.AuditLogs) }

// Dir returns the folder with the servers' data and logs (NAME.log).
func (c *ControlPlane) Dir() string { return c.info.Dir }

// PID returns the process of a server, or 0 while it is stopped. The servers are called etcd-0, apiserver-0,
// apiserver-1, controller-manager. To make a server hang, send it SIGSTOP.
func (c *ControlPlane) PID(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pids[name]
}

// PIDs returns all servers that run, by name.
func (c *ControlPlane) PIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pids)
}

// KillServer ends a server with SIGKILL and returns when it is gone.
func (c *ControlPlane) KillServer(name string) error { return c.command("kill", name) }

// StopServer ends a server with SIGTERM, or SIGKILL if it takes more than 30 seconds, and returns when it is gone.
func (c *ControlPlane) StopServer(name string) error { return c.command("stop", name) }

// StartServer starts a server that was stopped or killed, with the same port and data, and returns when it is ready.
func (c *ControlPlane) StartServer(name string) error { return c.command("start", name) }

func (c *ControlPlane) command(verb, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, err := c.child.ask(verb + " " + name)
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, name, err)
	}
	var reply struct {
		PID   int
		Error string
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("%s %s: read what rota-kube says: %w: %s", verb, name, err, line)
	}
	if reply.Error != "" {
		return fmt.Errorf("%s %s: %w", verb, name, errors.New(reply.Error))
	}
	delete(c.pids, name)
	if verb == "start" {
		c.pids[name] = reply.PID
	}
	return nil
}
