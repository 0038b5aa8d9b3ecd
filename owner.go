package rota

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Owner describes the member that owns an object.
type Owner struct {
	// Member is the ID of the owner in the last table that this member saw. It is empty while the object's slot has none.
	Member string
	// Address is where other members reach the owner (Options.Address). It is empty if the owner publishes none.
	Address string
	// Epoch is the epoch at which the owner got the slot. A later owner has a higher one.
	Epoch uint64
	// Here is true if this member is the owner and works on the slot, so that its caches are complete for the object.
	Here bool
}

// Owner returns the owner of an object, which need not exist. A sharded controller of the program must be for the
// kind; the owner of a child is the owner of its parent. The answer is this member's view and may be outdated: use it
// to find the object's owner, and not to decide whether to write.
//
// With Options.Address it may read the owner's Lease once. It returns an error if the Lease cannot be read, if there is
// no such controller, and with slot.KeyUID.
func (r *Rota) Owner(ctx context.Context, kind schema.GroupKind, name types.NamespacedName) (Owner, error) {
	o, err := r.engine.Owner(ctx, kind, name)
	return Owner(o), err
}

// Forward returns a handler that serves requests on the member that owns the object. Use it for a server that runs on
// every replica and needs what only the owner has, such as a file server or a receiver of webhooks. object returns the
// object that a request is about, from its URL or headers; it must not read the body. If ok is false, the request is
// served on the member that received it.
//
// Requests for this member's objects go to next. Others are sent to the owner, with their path, headers and body, over
// mutual TLS, and X-Forwarded-For and X-Forwarded-Host are set. The owner calls its next. A request takes one hop at
// most. While the object's slot has no owner or moves, the request waits up to 5 s; then the client gets status 503
// with Retry-After. If the connection breaks after the request was sent, the client gets 502, since the owner may have
// served it. Requests with a body of more than 1 MiB are sent only once.
//
// The slot can move while next runs. So next must not rely on owning the object to the end, except for writes through
// clients of WrapConfig, which are refused once the slot is lost.
//
// Forward needs Options.Address on all members, a sharded controller for the kind, and a key other than slot.KeyUID. It
// returns an error otherwise, or if the kind has a handler already. With Options.Solo it returns next.
func (r *Rota) Forward(kind schema.GroupKind, next http.Handler,
	object func(*http.Request) (name types.NamespacedName, ok bool),
) (http.Handler, error) {
	return r.engine.Forward(kind, next, object)
}
