package writes

import (
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/transport"
)

// impersonated lists the users that the program impersonates in writes to objects of the member's slots. A fence
// recognizes a member by the Pod in its ServiceAccount's token. A request that impersonates a user has no such claim,
// so the fence admits it, however late it is.
type impersonated struct {
	mu    sync.Mutex
	users []string // sorted
}

// maxImpersonated is how many users are logged and reported.
const maxImpersonated = 10

// note logs a write as another user, once for each user.
func (i *impersonated) note(log logr.Logger, req *http.Request) {
	user := req.Header.Get(transport.ImpersonateUserHeader)
	if user == "" {
		return
	}
	i.mu.Lock()
	at, known := slices.BinarySearch(i.users, user)
	if known || len(i.users) >= maxImpersonated {
		i.mu.Unlock()
		return
	}
	i.users = slices.Insert(i.users, at, user)
	i.mu.Unlock()
	place, _ := caller()
	log.Info("A client of the program writes as another user, by impersonation. A fence cannot distinguish such writes "+
		"from writes of other programs: late writes of a replica that was paused may be accepted. If that matters, write "+
		"as the Pod's own ServiceAccount, and give it the permissions of that user", "user", user, "request",
		req.Method+" "+req.URL.Path, "at", place)
}

// Impersonated returns the users that clients of the program have impersonated in writes to objects of the member's
// slots, sorted, and at most ten.
func (w *Writes) Impersonated() []string {
	w.impersonated.mu.Lock()
	defer w.impersonated.mu.Unlock()
	return slices.Clone(w.impersonated.users)
}
