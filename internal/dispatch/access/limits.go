package access

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// usage is a user's current load.
type usage struct {
	limiter  *rate.Limiter
	underWay int
}

// maxUsers is how many users are tracked at a time.
const maxUsers = 10_000

// Admit counts a request of a user. Call release when it has ended. Further calls of release do nothing. The error is
// an *Error with wire.ProblemTooMany, or with wire.ProblemUnavailable if the limit for all users is reached.
func (g *Guard) Admit(u User) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	use := g.users[u.Name]
	if use == nil {
		if len(g.users) >= maxUsers {
			g.sweep(now)
		}
		if len(g.users) >= maxUsers {
			return nil, busy()
		}
		use = &usage{limiter: rate.NewLimiter(rate.Limit(g.o.Limits.Rate), g.o.Limits.Burst)}
		g.users[u.Name] = use
	}
	switch {
	case use.underWay >= g.o.Limits.UnderWay:
		return nil, &Error{Problem: wire.ProblemTooMany, RetryAfter: time.Second, Detail: fmt.Sprintf(
			"user %s has %d requests under way, and may have no more", u.Name, use.underWay)}
	case g.total >= g.o.Limits.Total:
		return nil, busy()
	}
	reservation := use.limiter.ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return nil, &Error{Problem: wire.ProblemTooMany, RetryAfter: wait, Detail: fmt.Sprintf(
			"user %s sends more than %v requests a second", u.Name, g.o.Limits.Rate)}
	}
	use.underWay++
	g.total++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		use.underWay--
		g.total--
	}), nil
}

func busy() *Error {
	return &Error{
		Problem: wire.ProblemUnavailable, Detail: "the dispatcher has as many requests under way as it may; try again",
		RetryAfter: time.Second,
	}
}

// sweep drops users that have nothing in flight and their full burst again, since they are like new users. It runs at
// most once a second. g.mu is held.
func (g *Guard) sweep(now time.Time) {
	if now.Sub(g.swept) < time.Second {
		return
	}
	g.swept = now
	for name, use := range g.users {
		if use.underWay == 0 && use.limiter.TokensAt(now) >= float64(g.o.Limits.Burst) {
			delete(g.users, name)
		}
	}
}
