package main

import (
	"fmt"
	"io"
	"log"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/agent"
)

// reachLimit bounds the request to a static API server.
const reachLimit = 5 * time.Second

type frontOptions struct {
	front    *front.Front
	form     string
	programs front.Programs
	out      outFolder
	offline  bool
}

func newFront() *cobra.Command {
	o := frontOptions{front: front.Default(), form: front.FormFiles}
	cmd := &cobra.Command{
		Use:   "front --static IP:PORT ...",
		Short: "Write the configuration of a proxy to run on each host in front of the API servers",
		Long: `Writes a HAProxy or Envoy configuration for a host, so that clients have one address that always answers: the
proxy prefers the Deployment's API servers, and uses the static ones while none of those is up. It passes TCP through,
so clients authenticate as before.

It also writes front.yaml, which rota front agent reads, and the agent's permissions. --form adds a static Pod or
systemd units for the proxy and the agent. Nothing is written unless each static server answers /readyz or you pass
--offline.`,
		Example: `  rota front --static 192.168.0.11:6443 --static 192.168.0.12:6443
  rota front --static 192.168.0.11:6443 --form static-pod --agent-image registry.example/rota:v1 --out front
  rota front --static 192.168.0.11:6443 --proxy envoy --form systemd --out front`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defaults := front.DefaultPrograms(o.front.Proxy)
			if !cmd.Flags().Changed("image") {
				o.programs.Image = defaults.Image
			}
			if !cmd.Flags().Changed("binary") {
				o.programs.Binary = defaults.Binary
			}
			return writeFront(cmd, &o)
		},
	}
	d := front.DefaultPrograms(front.HAProxy)
	o.programs = d
	f := cmd.Flags()
	f.StringVar(&o.front.Proxy, "proxy", o.front.Proxy, "haproxy or envoy")
	f.StringVar(&o.form, "form", o.form, "files, static-pod or systemd")
	f.StringArrayVar(&o.front.Static, "static", nil, "`IP:PORT` of a static API server (repeatable)")
	f.StringVar(&o.front.Listen, "listen", o.front.Listen, "`IP:PORT` for clients")
	f.StringVar(&o.front.Admin, "admin", o.front.Admin, "`IP:PORT` for the proxy's metrics and health")
	f.StringVar(&o.front.Service, "service", o.front.Service,
		"`NAMESPACE/NAME` of the Service of the Deployment's API servers")
	f.StringVar(&o.front.PortName, "port-name", o.front.PortName, "name of that Service's port")
	f.StringVar(&o.front.CA, "ca", o.front.CA, "`file` on the host with the API servers' CAs")
	f.StringVar(&o.front.ServerName, "server-name", o.front.ServerName, "`name` that all API servers' certificates "+
		"contain")
	f.StringVar(&o.front.Client, "client-cert", "",
		"`file` on the host with a certificate and key for health checks, if anonymous requests are off")
	f.DurationVar(&o.front.Interval.Duration, "check-interval", o.front.Interval.Duration,
		"time between health checks (each costs an API server about 1 ms of CPU)")
	f.DurationVar(&o.front.Timeout.Duration, "check-timeout", o.front.Timeout.Duration,
		"timeout for connecting, and for TCP and TLS of a health check")
	f.DurationVar(&o.front.AnswerTimeout.Duration, "answer-timeout", o.front.AnswerTimeout.Duration,
		"timeout for the answer to a health check; plus 4s for each extra etcd (haproxy)")
	f.DurationVar(&o.front.SlowStart.Duration, "slow-start", o.front.SlowStart.Duration,
		"how long a recovered server gets less than its share")
	f.DurationVar(&o.front.IdleTimeout.Duration, "idle-timeout", o.front.IdleTimeout.Duration,
		"close a connection after this time without traffic")
	f.IntVar(&o.front.MaxConnections, "max-connections", o.front.MaxConnections, "limit on client connections")
	f.StringVar(&o.front.Dir, "dir", o.front.Dir, "`folder` for the configuration on the host")
	f.StringVar(&o.front.RunDir, "run-dir", o.front.RunDir, "`folder` for sockets on the host")
	f.StringVar(&o.programs.Image, "image", "", "image of the proxy, for static-pod (default "+d.Image+", or Envoy's)")
	f.StringVar(&o.programs.AgentImage, "agent-image", "", "image that contains this command; required for static-pod")
	f.StringVar(&o.programs.Binary, "binary", "", "`path` of the proxy on the host, for systemd (default "+d.Binary+
		", or Envoy's)")
	f.StringVar(&o.programs.AgentBinary, "agent-binary", d.AgentBinary, "`path` of this command on the host, for systemd")
	f.StringVar(&o.programs.Kubeconfig, "agent-kubeconfig", d.Kubeconfig,
		"`file` on the host with the agent's credentials; its server is ignored")
	o.out.flags(f, " (default: print)")
	f.BoolVar(&o.offline, "offline", false, "do not contact the static API servers or read certificates")
	cmd.AddCommand(newFrontAgent())
	return cmd
}

func newFrontAgent() *cobra.Command {
	dir, kubeconfig := front.Default().Dir, front.KubeletConfig
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep a host's front up to date with the API servers' endpoints",
		Long: `Watches the EndpointSlices of the Service in front.yaml, and updates the proxy: HAProxy without a reload, Envoy
through its file. Endpoints that are terminating or not ready keep their connections, but get no new ones. While no API
server answers, the static servers and the last known ones stay.

It waits for its kubeconfig to exist, and reloads it when it changes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			klog.SetLogger(logr.Discard()) // the agent reports errors itself
			logger := log.New(cmd.ErrOrStderr(), "", log.LstdFlags|log.LUTC)
			o := agent.Options{Dir: dir, Kubeconfig: kubeconfig, Log: logger.Printf}
			if err := agent.Run(cmd.Context(), o); err != nil {
				return fmt.Errorf("front agent: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "`folder` with front.yaml and the proxy's configuration")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "`file` with credentials; its server is ignored")
	return cmd
}

func writeFront(cmd *cobra.Command, o *frontOptions) error {
	if err := o.out.check(); err != nil {
		return usagef("front: %w", err)
	}
	files, err := o.front.Files(o.form, o.programs, nil)
	if err != nil {
		return usagef("front: nothing was written: %w", err)
	}
	if !o.offline {
		if err := agent.Reach(cmd.Context(), o.front, reachLimit); err != nil {
			return fmt.Errorf("front: nothing was written: %w; --offline writes without this check", err)
		}
	}
	w := cmd.OutOrStdout()
	if o.out.dir == "" {
		return printFiles(w, files)
	}
	if err := writeFiles(w, o.out, files, front.Written); err != nil {
		return fmt.Errorf("front: %w", err)
	}
	return nil
}

// printFiles prints files, each with a header.
func printFiles(w io.Writer, files []front.File) error {
	for i, f := range files {
		gap := "\n"
		if i == 0 {
			gap = ""
		}
		if _, err := fmt.Fprintf(w, "%s#### %s\n%s", gap, f.Path, f.Text); err != nil {
			return err
		}
	}
	return nil
}
