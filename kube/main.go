// Command rota-kube is a whole Kubernetes control plane in one binary: etcd, the API server and the controller manager,
// compiled from their released sources, plus a supervisor that runs them on free loopback ports, in a folder that is
// gone afterwards.
//
//	rota-kube up                    run a control plane until Ctrl-C
//	rota-kube etcd [flags]          be etcd
//	rota-kube apiserver [flags]     be kube-apiserver
//	rota-kube controller-manager    be kube-controller-manager
//	rota-kube version
//
// It is meant for tests, demos and measurements. It is not a cluster: there is no node, no scheduler and no kubelet, so
// pods are records that nothing runs. etcd listens without TLS on loopback, so anyone with an account on the machine
// can read it, and does not wait for the disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

const usage = `rota-kube runs a Kubernetes control plane for tests and demos.

  rota-kube up [flags]      run etcd and kube-apiserver until Ctrl-C (rota-kube up -h lists the flags)
  rota-kube version         print the versions it is made of

  rota-kube etcd | apiserver | controller-manager [flags]
                            be that server, with its own flags
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	name, args := os.Args[1], os.Args[2:]
	if runServer(name, args) {
		return
	}
	switch name {
	case "up":
		if err := up(args); err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "rota-kube:", err)
			os.Exit(1)
		}
	case "version", "--version":
		printVersion(os.Stdout)
	case "help", "-h", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "rota-kube: no such command: %s\n\n%s", name, usage)
		os.Exit(2)
	}
}
