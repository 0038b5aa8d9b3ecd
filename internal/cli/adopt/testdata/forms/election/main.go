// Package election is a client-go program with a leader election of its own.
package election

import (
	"context"

	"k8s.io/client-go/tools/leaderelection"
)

func run(ctx context.Context, c leaderelection.LeaderElectionConfig) {
	leaderelection.RunOrDie(ctx, c)
}
