// Package reconciler runs a reconciler of controller-runtime as a worker of dispatchers. The reconciler does not
// change, but it must read from the API server: its client must have no cache, and nothing watches. The Example shows
// a manager like that.
//
// A program that wants a cache does not want dispatchers: package ctrlrt divides the objects between its replicas.
package reconciler

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/dispatch/client"
)

// Runnable is a worker that a manager runs. All replicas run theirs: it does not wait for leader election.
type Runnable struct {
	worker client.Worker
	handle client.Handler
}

var (
	_ manager.Runnable               = (*Runnable)(nil)
	_ manager.LeaderElectionRunnable = (*Runnable)(nil)
)

// New returns a worker that calls r for the keys of a kind. w must name that kind in Kinds, and no other: requests have
// none. What controller-runtime's MaxConcurrentReconciles is, is w.Concurrency here.
func New(w client.Worker, r reconcile.Reconciler) (*Runnable, error) {
	if len(w.Kinds) != 1 {
		return nil, fmt.Errorf("reconciler: %d kinds: requests have none, so name one", len(w.Kinds))
	}
	if w.Client == nil || r == nil {
		return nil, errors.New("reconciler: Client and Reconciler must be set")
	}
	return &Runnable{worker: w, handle: Handler(r)}, nil
}

// Start implements manager.Runnable: it takes keys until ctx ends.
func (r *Runnable) Start(ctx context.Context) error { return client.Run(ctx, r.worker, r.handle) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *Runnable) NeedLeaderElection() bool { return false }

// Handler returns a handler for workers that has r reconcile the object of a key. It is for programs without a manager.
// For a deleted object r gets the same request, and finds that the object does not exist.
//
// Results mean the same as in controller-runtime. After an error the key is retried, unless the error is a
// TerminalError. RequeueAfter has the key come again after that time, and Requeue after the delay for failures. With an
// error they are ignored. Priority has no meaning.
func Handler(r reconcile.Reconciler) client.Handler {
	return func(ctx context.Context, t *client.Take) (client.Result, error) {
		values := []any{"kind", t.Kind, "namespace", t.Namespace, "name", t.Name, "reconcileID", uuid.NewUUID()}
		log := logf.FromContext(ctx, values...)
		ctx = context.WithValue(logf.IntoContext(ctx, log), takeKey{}, t)
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: t.Namespace, Name: t.Name}}
		result, err := r.Reconcile(ctx, request)
		switch {
		case errors.Is(err, reconcile.TerminalError(nil)):
			log.Error(err, "Reconciler error; it is not tried again")
			return client.Result{}, nil
		case err != nil:
			return client.Result{}, err
		case result.RequeueAfter > 0:
			return client.Result{After: result.RequeueAfter}, nil
		default:
			return client.Result{Retry: result.Requeue}, nil //nolint:staticcheck // it is deprecated, and there
		}
	}
}

type takeKey struct{}

// TakeFrom returns the take that a reconciler works on, from its context: its epoch, for systems outside Kubernetes
// that refuse late writes, or whether the object is gone. It is nil outside Handler.
func TakeFrom(ctx context.Context) *client.Take {
	t, _ := ctx.Value(takeKey{}).(*client.Take)
	return t
}
