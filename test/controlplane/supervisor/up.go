// Package supervisor runs the servers of a Kubernetes control plane, etcd, kube-apiserver and, if asked for,
// kube-controller-manager, on free loopback ports, in a folder that is gone afterwards. It is the command
// `rota-kube up`.
//
// It is meant for tests, demos and measurements, and is not a cluster: there is no node, no scheduler and no kubelet,
// so Pods are records that nothing runs. etcd listens without TLS on loopback, so that anyone with an account on the
// machine can read it, and does not wait for the disk.
package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/test/controlplane/assets"
)

type options struct {
	assets            assets.Folder
	featureGates      string
	audit             bool
	auditPolicy       string
	apiServers        int
	controllerManager bool
	managerPath       string // of kube-controller-manager; empty without controllerManager
	dir               string
	kubeconfig        string
	json              bool
	verbose           bool
}

// Info is what --json prints, on one line, when everything is ready.
type Info struct {
	Kubeconfig string `json:"kubeconfig"`
	// APIServers are their URLs, and Etcd is the client URL, plain HTTP, of etcd.
	APIServers []string `json:"apiservers"`
	Etcd       string   `json:"etcd"`
	// PIDs are the processes of the servers, by name.
	PIDs map[string]int `json:"pids"`
	// Dir has data, keys and logs.
	Dir          string   `json:"dir"`
	AuditLogs    []string `json:"auditLogs"`
	StartSeconds float64  `json:"startSeconds"`
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("rota-kube up", flag.ContinueOnError)
	fs.StringVar((*string)(&o.assets), "assets", "",
		"`folder` with kube-apiserver and etcd (default: what \"rota-kube assets\" finds, downloads or builds)")
	fs.StringVar(&o.featureGates, "feature-gates", "",
		"feature gates of the API servers, `name=bool,...` (default: ShardedListAndWatch=true where they have it)")
	fs.BoolVar(&o.audit, "audit", false, "write an audit log per API server")
	fs.StringVar(&o.auditPolicy, "audit-policy", "", "audit policy `file` instead of the built-in one; implies --audit")
	fs.IntVar(&o.apiServers, "apiservers", 1, "how many API servers serve the same etcd, 1 or 2")
	fs.BoolVar(&o.controllerManager, "controller-manager", false,
		"run kube-controller-manager: garbage collection, namespaces, default service accounts and more")
	fs.StringVar(&o.dir, "dir", "",
		"`folder` for data, keys and logs, removed at the end (default: a fresh temporary one)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "write the administrator's kubeconfig to this `file` as well")
	fs.BoolVar(&o.json, "json", false,
		"print one line of JSON when ready; take `stop|kill|start NAME` on standard input and end with it")
	fs.BoolVar(&o.verbose, "v", false, "show the servers' logs")
	fs.SetOutput(io.Discard)
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(os.Stdout)
		fs.Usage()
		return o, err
	} else if err != nil {
		return o, fmt.Errorf("%w (rota-kube up -h lists the flags)", err)
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("up takes no arguments: %q", fs.Args())
	}
	if o.apiServers != 1 && o.apiServers != 2 {
		return o, fmt.Errorf("--apiservers=%d: it must be 1 or 2", o.apiServers)
	}
	if o.auditPolicy != "" {
		o.audit = true
	}
	return o, nil
}

// findPrograms finds what the options need, and builds it if there is no other way.
func (o *options) findPrograms(ctx context.Context) (err error) {
	if o.assets == "" {
		if o.assets, err = assets.Find(ctx, os.Stderr); err != nil {
			return err
		}
	}
	if o.controllerManager {
		if o.managerPath, err = o.assets.ControllerManager(ctx, os.Stderr); err != nil {
			return err
		}
	}
	if o.featureGates != "" {
		return nil
	}
	// An API server does not start with a gate that it does not know.
	const gate = "ShardedListAndWatch"
	known, err := o.assets.HasFeatureGate(ctx, gate)
	if known {
		o.featureGates = gate + "=true"
	}
	return err
}

// Main is the command `rota-kube up` with args: it runs a control plane until it is stopped, and leaves nothing behind.
// It returns the exit status. Call it on the main thread, from an init function or from main in a program that locks it
// in an init function: see dieWithParent.
func Main(args []string) (status int) {
	if err := up(args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rota-kube:", err)
		return 1
	}
	return 0
}

func up(args []string) (err error) {
	begin := time.Now()
	opt, err := parseOptions(args)
	if err != nil {
		return err
	}
	if opt.kubeconfig != "" {
		if err := mayOverwrite(opt.kubeconfig); err != nil {
			return err
		}
	}
	signals, stopSignals := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stopSignals()
	// The end of input must not call stopSignals: a killed parent closes our input first and has SIGTERM sent a moment
	// later, which would then kill us in the middle of cleaning up.
	ctx, cancel := context.WithCancel(signals)
	defer cancel()
	// A reader of our output that went away must not kill us before the folder is removed; the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	orphaned, err := dieWithParent()
	if err != nil {
		return err
	}
	defer func() {
		if signals.Err() != nil && orphaned() {
			fmt.Fprintln(os.Stderr,
				"rota-kube: the control plane ends, because the process that started it, such as a shell, has ended")
		}
	}()
	var commands <-chan string
	if opt.json {
		commands = readCommands(os.Stdin, cancel)
	}

	if err := opt.findPrograms(ctx); err != nil {
		return err
	}
	d, err := newDir(opt.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.remove()) }()
	l, err := newLayout(opt, d)
	if err != nil {
		return err
	}
	var echo io.Writer
	if opt.verbose {
		echo = os.Stderr
	}
	s := newSupervisor(l, echo)
	defer s.end()
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("told to end before the control plane was ready")
		}
		return err
	}
	if opt.kubeconfig != "" {
		remove, err := copyKubeconfig(l.kubeconfig, opt.kubeconfig)
		if err != nil {
			return err
		}
		defer remove()
	}
	if err := announce(s, time.Since(begin)); err != nil {
		return err
	}
	return s.run(ctx, commands, func(v any) {
		_ = json.NewEncoder(os.Stdout).Encode(v) // if the reader is gone, so is standard input
	})
}

func announce(s *supervisor, took time.Duration) error {
	seconds := float64(took.Milliseconds()) / 1000
	if s.opt.json {
		return json.NewEncoder(os.Stdout).Encode(Info{
			Kubeconfig: s.kubeconfig, APIServers: s.apiURLs, Etcd: s.etcdURL,
			PIDs: s.pids(), Dir: s.dir.path, AuditLogs: s.auditLogs, StartSeconds: seconds,
		})
	}
	path := s.kubeconfig
	if s.opt.kubeconfig != "" {
		path, _ = filepath.Abs(s.opt.kubeconfig)
	}
	fmt.Printf("Kubernetes is ready at %s (%.1f s). In another terminal:\n\n", strings.Join(s.apiURLs, " and "), seconds)
	fmt.Printf("  export KUBECONFIG=%s\n  kubectl get namespaces\n\n", shellQuote(path))
	if len(s.auditLogs) > 0 {
		fmt.Printf("Audit log: %s\n", strings.Join(s.auditLogs, " "))
	}
	fmt.Printf("Logs and data: %s\nCtrl-C stops it and removes everything.\n", s.dir.path)
	return nil
}

func shellQuote(s string) string {
	if !strings.ContainsAny(s, " \t\"'\\$`*?[]{}()<>|&;#~!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
