// Command cmd builds bin/rota-kube if it is missing or older than its sources, and prints its path:
//
//	go run ./test/controlplane/cmd
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/rota-dev/rota/test/controlplane/build"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := build.Binary(ctx, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
