package writes

import (
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/transport"
)

// impersonated are the users as whom the program writes objects of the member's slots. A fence knows a member by what
// its ServiceAccount's token says of its Pod. A request that impersonates has none of that, so the fence lets it pass,
// however late it comes.
type impersonated struct {
	mu    sync.Mutex
	users []string // in order
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
	log.Info("A client of the program writes as another user, by impersonation. A fence cannot tell such writes from "+
		"those of other programs: those of a replica that was paused may be accepted late. If that matters, write as the "+
		"Pod's own ServiceAccount, and give it the permissions of that user", "user", user, "request",
		req.Method+" "+req.URL.Path, "at", place)
}

// Impersonated returns the users as whom clients of the program have written objects of the member's slots, in order,
// and at most ten.
func (w *Writes) Impersonated() []string {
	w.impersonated.mu.Lock()
	defer w.impersonated.mu.Unlock()
	return slices.Clone(w.impersonated.users)
}
