package demo

import (
	"context"

	"k8s.io/client-go/rest"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Fleet is the replicas of a run, for Options.Story. Its methods are for the goroutine that tells the story.
type Fleet struct{ e *engine }

// Namespace is the rota's.
func (*Fleet) Namespace() string { return rotaNamespace }

// Name is the rota's.
func (*Fleet) Name() string { return rotaName }

// Sites is the namespace of the Websites.
func (*Fleet) Sites() string { return sitesNamespace }

// Config is an administrator's, and must not be changed.
func (f *Fleet) Config() *rest.Config { return f.e.cluster.Config }

// Kubeconfig is the path of an administrator's kubeconfig.
func (f *Fleet) Kubeconfig() string {
	if plane := f.e.cluster.Plane; plane != nil {
		return plane.Kubeconfig()
	}
	return f.e.o.Kubeconfig
}

// Pods are the replicas that run and were not told to end, oldest first.
func (f *Fleet) Pods() []string {
	var pods []string
	for _, p := range f.e.live() {
		pods = append(pods, p.pod)
	}
	return pods
}

// Websites lists those that there are.
func (f *Fleet) Websites(ctx context.Context) ([]webv1.Website, error) {
	return f.e.cluster.Websites(ctx)
}

// Table is the last version of the table that a watch showed; nil before the first one.
func (f *Fleet) Table() *table.Table {
	t, _ := f.e.follow.Latest()
	return t
}

// Update is a phase of the story. It is over when exactly the replicas that run share the slots, and nothing moves.
func (f *Fleet) Update(ctx context.Context, u Update) error {
	return f.e.phase(ctx, u.Build, f.e.update(u))
}

// Quiet waits until exactly the replicas that run share the slots evenly, and nothing moves.
func (f *Fleet) Quiet(ctx context.Context) error { return f.e.quiet(ctx) }
