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
		Long: `Writes the configuration of HAProxy or Envoy for a host, so that clients have one address that always answers:
the Deployment's API servers first, and the static ones while none of them is up. TCP passes through, so clients
authenticate as before.

It also writes front.yaml, which rota front agent reads, and the agent's permissions. --form adds a static Pod or
systemd units for proxy and agent. Nothing is written unless each static server answers /readyz or --offline is given.`,
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
	f.StringVar(&o.front.ServerName, "server-name", o.front.ServerName, "`name` that all API servers' certificates have")
	f.StringVar(&o.front.Client, "client-cert", "",
		"`file` on the host with certificate and key for health checks, if anonymous requests are off")
	f.DurationVar(&o.front.Interval.Duration, "check-interval", o.front.Interval.Duration,
		"time between two health checks (each costs an API server about 1 ms of CPU)")
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
	f.StringVar(&o.programs.AgentImage, "agent-image", "", "image with this command; required for static-pod")
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
		Long: `Follows the EndpointSlices of the Service that front.yaml names, and updates the proxy: HAProxy without a
reload, Envoy by its file. Endpoints that terminate or are not ready keep their connections, and get no new ones. While
no API server answers, the static servers and those known last stay.

It waits for its kubeconfig, and reads it again when it changes.`,
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
