// Command cmd builds bin/rota-kube if it is missing or older than its sources, and prints its path. With -kubernetes it
// is that of another minor version, bin/rota-kube-1.33:
//
//	go run ./test/controlplane/cmd [-kubernetes 1.33]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/rota-dev/rota/test/controlplane/build"
)

func main() {
	version := flag.String("kubernetes", "", "minor version of Kubernetes, such as 1.33 (default that of kube/go.mod)")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := find(ctx, *version)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func find(ctx context.Context, version string) (string, error) {
	if version == "" {
		return build.Binary(ctx, os.Stderr)
	}
	return build.Of(ctx, version, os.Stderr)
}
