package rota

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/writes"
)

// ErrDeadline is wrapped by the errors of writes that were not sent because this member could not renew its Lease in
// time: others may be about to take its slots.
var ErrDeadline = writes.ErrDeadline

// WrapConfig returns a copy of cfg whose clients write as a member must. Use it for every client with which reconcilers
// write, and for those of informers, whose requests show which kinds are watched. ctrlrt uses it for the manager's
// clients.
//
// A write with the context of a reconcile, or one derived from it, is refused once the reconcile has returned, its slot
// is lost, or the deadline of the member's Lease has passed. The error then wraps context.Canceled, ErrLost,
// ErrExpired or ErrDeadline. Until then a reconcile whose context has ended, by a timeout or because a member that
// leaves cuts it short, may write with context.WithoutCancel. A write carries a server-side timeout within that
// deadline, of at most Options.WriteTimeout. The client gives up with it as long as the write has not been sent, and
// then waits for the answer until that deadline. If the outcome is unknown, the write keeps its slot from moving on
// until it can no longer take effect (rules R2 and R6).
//
// A write with another context is treated the same if its object is in a slot that this member has, or still works in
// after it lost it. Otherwise it goes through, as a write of an unsharded controller. A write with another context to
// an object of a sharded kind, or to a child of one, is logged once per place in the program.
//
// Writes and deletions are noted from their answers, so that the slot's next owner waits until its informers show them
// (rule R8). Those in another cluster than the kind's informers read from are not: its config has another host and
// another certificate authority.
//
// The reads of sharded informers get the informers' selectors, even if a ListerWatcher replaced them. Other reads are
// left alone.
func (r *Rota) WrapConfig(cfg *rest.Config) *rest.Config { return r.writes.WrapConfig(cfg) }

// WrapTransport is WrapConfig for programs that make their own http.Client. nil stands for http.DefaultTransport.
func (r *Rota) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return r.writes.WrapTransport(next)
}

// Wrote notes that a client of this member wrote an object of any kind and got this answer. ctx is the write's context.
// The next owners of these slots wait until their informers show the object's version (rule R8): the object's own slot,
// and its controlling owner's, if their kinds are sharded; for a kind that every member caches whole, the slot that ctx
// works in. Clients of WrapConfig note their writes and deletions themselves. Wrote is for other clients.
func (r *Rota) Wrote(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	r.writes.Wrote(ctx, kind, obj)
}
