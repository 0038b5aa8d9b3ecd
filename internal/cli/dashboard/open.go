package dashboard

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/view"
)

// AnyPort is the default address.
const AnyPort = "127.0.0.1:0"

// Open starts a dashboard of a rota at a HOST:PORT address. Without replicas it has no buttons. Its clients are closed
// when ctx ends.
func Open(
	ctx context.Context, address string, cfg *rest.Config, namespace, name string, replicas Replicas,
) (*Server, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 50, 300 // as kubectl
	reader, err := view.NewReader(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, reader.Close)
	finder, err := view.NewFinder(cfg)
	if err != nil {
		return nil, err
	}
	return Listen(ctx, address, Options{
		Namespace: namespace, Name: name, Replicas: replicas,
		Who: func(ctx context.Context, kind, in, object string) (any, error) {
			r, err := reader.Read(ctx)
			if err != nil {
				return nil, err
			}
			w, err := finder.Who(ctx, r, kind, in, object)
			if errors.Is(err, view.ErrNoKind) || errors.Is(err, view.ErrBadName) {
				return nil, QuestionError{Err: err}
			}
			return w, err
		},
		Watch: func(ctx context.Context, report func(*view.Rota, error)) error {
			return view.Watch(ctx, cfg, namespace, name, reader.Read, report)
		},
	})
}
