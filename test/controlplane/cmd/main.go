// Command rota-kube runs a Kubernetes control plane for tests and demos, and finds or builds its programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/controlplane/supervisor"
)

const usage = `rota-kube runs a Kubernetes control plane for tests and demos.

  rota-kube up [flags]      run etcd and kube-apiserver until Ctrl-C (rota-kube up -h lists the flags)
  rota-kube assets [flags]  print a folder with both programs, for KUBEBUILDER_ASSETS; download or build
                            them first if need be (rota-kube assets -h lists the flags)
`

func init() { runtime.LockOSThread() } // for supervisor.Main

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch name, args := os.Args[1], os.Args[2:]; name {
	case "up":
		os.Exit(supervisor.Main(args))
	case "assets":
		if err := find(args); err != nil {
			fmt.Fprintln(os.Stderr, "rota-kube:", err)
			os.Exit(1)
		}
	case "help", "-h", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "rota-kube: no such command: %s\n\n%s", name, usage)
		os.Exit(2)
	}
}

// find prints the folder of programs that the flags choose.
func find(args []string) error {
	fs := flag.NewFlagSet("rota-kube assets", flag.ExitOnError)
	version := fs.String("kubernetes", "", "build those of this minor `version` of Kubernetes, such as 1.33, from source")
	manager := fs.Bool("controller-manager", false, "build kube-controller-manager as well, if it is missing")
	_ = fs.Parse(args) // it exits if they are wrong
	if fs.NArg() > 0 {
		return fmt.Errorf("assets takes no arguments: %q", fs.Args())
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	choose := assets.Find
	if *version != "" {
		choose = func(ctx context.Context, w io.Writer) (assets.Folder, error) { return assets.Of(ctx, *version, w) }
	}
	folder, err := choose(ctx, os.Stderr)
	if err == nil && *manager {
		_, err = folder.ControllerManager(ctx, os.Stderr)
	}
	if err != nil {
		return err
	}
	if *version == "" && os.Getenv("KUBEBUILDER_ASSETS") != "" {
		v, err := folder.Version(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "rota-kube: using kube-apiserver %s in %s (KUBEBUILDER_ASSETS)\n", v, folder)
	}
	fmt.Println(folder)
	return nil
}
