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

// reachLimit is how long a static API server may take to answer.
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
		Short: "Write the configuration of a proxy on each host before the API servers",
		Long: `Writes the configuration of HAProxy or Envoy for a host, which gives clients one address that always answers.
The API servers of a Deployment come first; the static ones stand in while none of them is up, and at a cold start. TCP
is passed through, so clients authenticate with API servers as before.

Besides the proxy's configuration there are front.yaml, which "rota front agent" reads, and the permissions that the
agent needs. --form adds what runs proxy and agent: a static Pod, or units of systemd. Without --out the files
are printed.

Each static server is asked for /readyz first, as the proxy will. If one does not answer that it is ready, nothing is
written. --offline leaves that out: where the static servers do not run yet, or this machine is not the host.`,
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
	f.StringArrayVar(&o.front.Static, "static", nil, "address of a static API server, `IP:PORT` (repeat it for each)")
	f.StringVar(&o.front.Listen, "listen", o.front.Listen, "address for clients, `IP:PORT`")
	f.StringVar(&o.front.Admin, "admin", o.front.Admin, "address of the proxy's metrics and health, `IP:PORT`")
	f.StringVar(&o.front.Service, "service", o.front.Service,
		"`NAMESPACE/NAME` of the Service of the Deployment's API servers")
	f.StringVar(&o.front.PortName, "port-name", o.front.PortName, "name of that Service's port")
	f.StringVar(&o.front.CA, "ca", o.front.CA, "`file` on the host with the authorities of the API servers' certificates")
	f.StringVar(&o.front.ServerName, "server-name", o.front.ServerName, "`name` that all API servers' certificates have")
	f.StringVar(&o.front.Client, "client-cert", "",
		"`file` on the host with a certificate and its key for health checks, where anonymous requests are off")
	f.DurationVar(&o.front.Interval.Duration, "check-interval", o.front.Interval.Duration,
		"time between two health checks, each of which costs an API server about a millisecond of a CPU")
	f.DurationVar(&o.front.Timeout.Duration, "check-timeout", o.front.Timeout.Duration,
		"longest time to connect, and for TCP and TLS of a health check")
	f.DurationVar(&o.front.AnswerTimeout.Duration, "answer-timeout", o.front.AnswerTimeout.Duration,
		"longest time for the answer to a health check; 4s more for each etcd by kind (haproxy)")
	f.DurationVar(&o.front.SlowStart.Duration, "slow-start", o.front.SlowStart.Duration,
		"how long a server that comes back gets less than its share")
	f.DurationVar(&o.front.IdleTimeout.Duration, "idle-timeout", o.front.IdleTimeout.Duration,
		"end a connection after this time without a byte")
	f.IntVar(&o.front.MaxConnections, "max-connections", o.front.MaxConnections, "limit of clients' connections")
	f.StringVar(&o.front.Dir, "dir", o.front.Dir, "`folder` of the configuration on the host")
	f.StringVar(&o.front.RunDir, "run-dir", o.front.RunDir, "`folder` of sockets on the host")
	f.StringVar(&o.programs.Image, "image", "", "image of the proxy, for static-pod (default "+d.Image+", or Envoy's)")
	f.StringVar(&o.programs.AgentImage, "agent-image", "", "image with this command, for static-pod, which needs it")
	f.StringVar(&o.programs.Binary, "binary", "", "`path` of the proxy on the host, for systemd (default "+d.Binary+
		", or Envoy's)")
	f.StringVar(&o.programs.AgentBinary, "agent-binary", d.AgentBinary, "`path` of this command on the host, for systemd")
	f.StringVar(&o.programs.Kubeconfig, "agent-kubeconfig", d.Kubeconfig,
		"`file` on the host with the agent's credentials; its server does not matter")
	o.out.flags(f, " (default: print)")
	f.BoolVar(&o.offline, "offline", false, "do not ask the static API servers, nor read certificates")
	cmd.AddCommand(newFrontAgent())
	return cmd
}

func newFrontAgent() *cobra.Command {
	dir, kubeconfig := front.Default().Dir, front.KubeletConfig
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep the endpoints of a front current, on its host",
		Long: `Follows the EndpointSlices of the Service that front.yaml names. When they change it writes the proxy's
configuration, and brings a running HAProxy to it without a reload. Envoy reads its file by itself.

Endpoints that terminate or are not ready drain: they keep their connections, and get no new ones. The agent asks
through the front itself, and the static servers if the front does not answer. While no API server answers, the static
ones and the servers known last stay. The static ones always do.

It waits for its kubeconfig, which a host has only after it has joined its cluster, and reads it again when that
changes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			klog.SetLogger(logr.Discard()) // the agent says what failed
			logger := log.New(cmd.ErrOrStderr(), "", log.LstdFlags|log.LUTC)
			o := agent.Options{Dir: dir, Kubeconfig: kubeconfig, Log: logger.Printf}
			if err := agent.Run(cmd.Context(), o); err != nil {
				return fmt.Errorf("front agent: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "`folder` with front.yaml and the proxy's configuration")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "`file` with credentials; its server does not matter")
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
			return fmt.Errorf("front: nothing was written: %w; --offline writes without asking", err)
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

// printFiles prints files one after the other, each with a line that names it.
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
