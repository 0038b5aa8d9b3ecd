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
	// tokenTTL is how long a valid token is accepted without asking again, so how late a revocation is noticed. After half
	// of it the API server is asked beside a request, which does not wait. So a token in use is reviewed once a minute,
	// and a revocation noticed then.
	tokenTTL = 2 * time.Minute
	// knownFor is how long a token that was valid is asked about outside the limit of new ones.
	knownFor = 10 * time.Minute
	// rejectedTTL is how long a token that is not valid is refused without asking.
	rejectedTTL = 10 * time.Second
	// maxToken is the longest token, in bytes.
	maxToken = 16 << 10
	// sourceFor is how long an address is remembered.
	sourceFor = 10 * time.Minute
	// addressRate is how many tokens that are not valid may come from one address each second.
	addressRate, addressBurst = 5, 50
)

// session is a token that is valid.
type session struct {
	user     User
	reviewed time.Time
	expires  time.Time // as the token says; zero: it does not
}

// mayHaveEnded says that the token has expired since it was reviewed, by this machine's clock. That of the API server
// decides.
func (s *session) mayHaveEnded(now time.Time) bool {
	return !s.expires.IsZero() && s.reviewed.Before(s.expires) && !now.Before(s.expires)
}

// Authenticate returns who sent the request, by its bearer token. The error is an *Error: wire.ProblemUnauthenticated,
// wire.ProblemTooMany from addresses that keep sending tokens that are not valid, or wire.ProblemUnavailable if the API
// server cannot be asked.
func (g *Guard) Authenticate(r *http.Request) (User, error) {
	token, problem := g.bearer(r)
	if problem != nil {
		return User{}, problem
	}
	key := g.fingerprint(token)
	if v, ok := g.known.Get(key); ok {
		s, _ := v.(*session)
		switch age := time.Since(s.reviewed); {
		case s.mayHaveEnded(time.Now()):
		case age < tokenTTL/2:
			return s.user, nil
		case age < tokenTTL:
			g.address(r).known(g)
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

// source is an address that requests come from.
type source struct {
	host string
	// failures are of tokens that are not valid, and likely of those that looked as if they were.
	failures, likely *rate.Limiter
	valid            atomic.Bool // a valid token has come from it
}

// known notes that a valid token came from the address.
func (s *source) known(g *Guard) {
	s.valid.Store(true)
	g.addresses.Add(s.host, s, sourceFor)
}

// address returns where a request comes from.
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

// askNew asks about a token that has not been valid yet. Such questions are limited, overall and by address. Addresses
// from which valid tokens have come have a limit of their own: those whose tokens are renewed do not queue behind a
// flood. So have tokens that look valid: what is random, expired, or for somebody else does not keep these out, where
// all requests come from the address of a proxy.
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
		from.known(g)
	case errors.As(err, &refused) && refused.Problem == wire.ProblemUnauthenticated:
		failures.Reserve() // only tokens that are not valid count, and those that were asked about meanwhile, too
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

// fingerprint is what a token is remembered by. The token itself is not kept.
func (g *Guard) fingerprint(token string) string {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(token))
	return string(mac.Sum(nil))
}

// ask asks about a token, once for all requests with it.
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

// review asks the API server about a token, and remembers the answer.
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

// flaw says why a token is not accepted, or "".
func (g *Guard) flaw(s authenticationv1.TokenReviewStatus) string {
	switch {
	case !s.Authenticated && s.Error != "":
		return fmt.Sprintf("the token is not valid for the audience %q: %s", g.o.Audience, cut(s.Error))
	case !s.Authenticated:
		return fmt.Sprintf("the token is not valid for the audience %q", g.o.Audience)
	case !slices.Contains(s.Audiences, g.o.Audience):
		// An authenticator that knows nothing of audiences accepts any token.
		return fmt.Sprintf("the API server does not confirm that the token is for the audience %q", g.o.Audience)
	case s.User.Username == "":
		return "the API server does not say whose token it is"
	}
	return ""
}

// cut shortens what the API server says, since it is kept.
func cut(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
