package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/permission"
)

const (
	// tokenTTL is how long a valid token is accepted without another review, and so the latest that a revocation is
	// noticed. After half of that time the next request starts a review without waiting for it. So a token in use is
	// reviewed once a minute, and a revocation is noticed then.
	tokenTTL = 2 * time.Minute
	// knownFor is how long a token that was valid is reviewed outside the limit for new ones.
	knownFor = 10 * time.Minute
	// rejectedTTL is how long an invalid token is refused without another review.
	rejectedTTL = 10 * time.Second
	// maxToken is the longest token, in bytes.
	maxToken = 16 << 10
	// sourceFor is how long an address is remembered.
	sourceFor = 10 * time.Minute
	// addressRate is how many invalid tokens per second one address may send.
	addressRate, addressBurst = 5, 50
)

// session is the result of a review of a valid token.
type session struct {
	user     User
	reviewed time.Time
	expires  time.Time // as claimed by the token; zero if unknown
}

// mayHaveExpired reports whether the token has expired since it was reviewed, by this machine's clock. The API server's
// clock decides.
func (s *session) mayHaveExpired(now time.Time) bool {
	return !s.expires.IsZero() && s.reviewed.Before(s.expires) && !now.Before(s.expires)
}

// Authenticate returns the sender of the request, by its bearer token. The error is an *Error:
// wire.ProblemUnauthenticated, wire.ProblemTooMany for addresses that keep sending invalid tokens, or
// wire.ProblemUnavailable if the API server cannot be asked.
func (g *Guard) Authenticate(r *http.Request) (User, error) {
	token, problem := g.bearer(r)
	if problem != nil {
		return User{}, problem
	}
	key := g.fingerprint(token)
	if v, ok := g.known.Get(key); ok {
		s, _ := v.(*session)
		switch age := time.Since(s.reviewed); {
		case s.mayHaveExpired(time.Now()):
		case age < tokenTTL/2:
			return s.user, nil
		case age < tokenTTL:
			g.address(r).recordValid(g)
			g.flights.DoChan(key, func() (any, error) { return g.review(key, token) })
			return s.user, nil
		}
		return g.ask(r.Context(), key, token)
	}
	if v, ok := g.rejected.Get(key); ok {
		detail, _ := v.(string)
		return User{}, &Error{Problem: wire.ProblemUnauthenticated, Detail: detail}
	}
	return g.askNew(r, key, token)
}

// source is an address that sends requests.
type source struct {
	host string
	// failures limits invalid tokens, and likely the invalid tokens that looked valid.
	failures, likely *rate.Limiter
	valid            atomic.Bool // it has sent a valid token
}

// recordValid records that the address has sent a valid token.
func (s *source) recordValid(g *Guard) {
	s.valid.Store(true)
	g.addresses.Add(s.host, s, sourceFor)
}

// address returns the source of a request.
func (g *Guard) address(r *http.Request) *source {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.addresses.Get(host); ok {
		s, _ := v.(*source)
		return s
	}
	s := &source{
		host: host, failures: rate.NewLimiter(addressRate, addressBurst), likely: rate.NewLimiter(addressRate, addressBurst),
	}
	g.addresses.Add(host, s, sourceFor)
	return s
}

// askNew has a token reviewed that has not been valid yet. Such reviews are limited, overall and by address. Addresses
// that have sent valid tokens have a separate limit, so that renewed tokens do not queue behind a flood. Tokens that
// look valid also have a separate limit per address. So tokens that are random, expired, or for another audience do not
// crowd these out where all requests come from the address of a proxy.
func (g *Guard) askNew(r *http.Request, key, token string) (User, error) {
	from := g.address(r)
	now := time.Now()
	failures := from.failures
	if looksValid(token, g.o.Audience, now) {
		failures = from.likely
	}
	if short := 1 - failures.TokensAt(now); short > 0 {
		g.reviews.WithLabelValues(reviewToken, outcomeLimited).Inc()
		return User{}, &Error{
			Problem: wire.ProblemTooMany, RetryAfter: time.Duration(short / addressRate * float64(time.Second)),
			Detail: "too many tokens from this address were not valid; tokens that have been valid are still accepted",
		}
	}
	overall := g.unknown
	if from.valid.Load() {
		overall = g.renewed
	}
	if !overall.AllowN(now, 1) {
		g.reviews.WithLabelValues(reviewToken, outcomeLimited).Inc()
		return User{}, &Error{
			Problem: wire.ProblemUnavailable, RetryAfter: retrySoon,
			Detail: "the dispatcher does not ask the API server about more new tokens now; try again",
		}
	}
	user, err := g.ask(r.Context(), key, token)
	var refused *Error
	switch {
	case err == nil:
		from.recordValid(g)
	case errors.As(err, &refused) && refused.Problem == wire.ProblemUnauthenticated:
		failures.Reserve() // only invalid tokens count, including those reviewed meanwhile
	}
	return user, err
}

// bearer returns the token of a request.
func (g *Guard) bearer(r *http.Request) (string, *Error) {
	refuse := func(what string) (string, *Error) {
		return "", &Error{Problem: wire.ProblemUnauthenticated, Detail: fmt.Sprintf(
			"%s; send the header Authorization: Bearer TOKEN with a token for the audience %q", what, g.o.Audience)}
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return refuse("there is no bearer token")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.Trim(token, " ")
	switch {
	case len(headers) > 1:
		return refuse("there are several headers Authorization")
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return refuse("the header Authorization has no bearer token")
	case len(token) > maxToken:
		return refuse(fmt.Sprintf("the token is longer than %d bytes", maxToken))
	case strings.ContainsFunc(token, notOfToken):
		return refuse("the token has characters that tokens do not have (RFC 6750)")
	}
	return token, nil
}

func notOfToken(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._~+/=", c))
}

// fingerprint identifies a token in the caches. The token itself is not kept.
func (g *Guard) fingerprint(token string) string {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(token))
	return string(mac.Sum(nil))
}

// ask has a token reviewed, once for all concurrent requests with it.
func (g *Guard) ask(ctx context.Context, key, token string) (User, error) {
	answer := g.flights.DoChan(key, func() (any, error) { return g.review(key, token) })
	select {
	case a := <-answer:
		user, _ := a.Val.(User)
		return user, a.Err
	case <-ctx.Done():
		return User{}, &Error{
			Problem: wire.ProblemUnavailable, Detail: "the request ended before its token was reviewed", RetryAfter: retrySoon,
		}
	}
}

// review asks the API server about a token, and caches the answer.
func (g *Guard) review(key, token string) (User, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
	defer cancel()
	begun := time.Now()
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{g.o.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		g.failed(reviewToken, permission.Refused(err, permission.Error{
			Group: authenticationv1.GroupName, Resource: "tokenreviews", Verb: "create",
		}))
		return User{}, &Error{
			Problem: wire.ProblemUnavailable, Detail: "the API server cannot be asked about the token", RetryAfter: retrySoon,
		}
	}
	if detail := g.flaw(review.Status); detail != "" {
		g.reviews.WithLabelValues(reviewToken, outcomeRefused).Inc()
		g.known.Remove(key)
		g.rejected.Add(key, detail, rejectedTTL)
		return User{}, &Error{Problem: wire.ProblemUnauthenticated, Detail: detail}
	}
	g.reviews.WithLabelValues(reviewToken, outcomeOK).Inc()
	info := review.Status.User
	user := User{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if len(info.Extra) > 0 {
		user.Extra = map[string][]string{}
		for k, v := range info.Extra {
			user.Extra[k] = v
		}
	}
	g.known.Add(key, &session{user: user, reviewed: begun, expires: claimsOf(token).expires()}, knownFor)
	return user, nil
}

// flaw returns why a token is not accepted, or "".
func (g *Guard) flaw(s authenticationv1.TokenReviewStatus) string {
	switch {
	case !s.Authenticated && s.Error != "":
		return fmt.Sprintf("the token is not valid for the audience %q: %s", g.o.Audience, cut(s.Error))
	case !s.Authenticated:
		return fmt.Sprintf("the token is not valid for the audience %q", g.o.Audience)
	case !slices.Contains(s.Audiences, g.o.Audience):
		// An authenticator that ignores audiences accepts any token.
		return fmt.Sprintf("the API server does not confirm that the token is for the audience %q", g.o.Audience)
	case s.User.Username == "":
		return "the API server does not say whose token it is"
	}
	return ""
}

// cut shortens a message of the API server, since it is cached.
func cut(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
