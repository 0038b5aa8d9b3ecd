package habits

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/rota-dev/rota/internal/cable"
)

// maxLag bounds how late a process hears what its watches bring, with SLOW=1. Each watch has a lag of its own, so that a
// process hears of a child before it hears of its owner, and of its own writes long after their answers.
const maxLag = 500 * time.Millisecond

// plugInto connects a process with a cable that is unplugged when the context ends.
func plugInto(plugged context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		if os.Getenv("SLOW") != "" {
			next = cable.LateWatches(next, func(*http.Request) time.Duration { return rand.N(maxLag) })
		}
		return cable.Plugged(plugged, next)
	}
}
