package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Errors that a Problem matches with errors.Is.
var (
	// ErrInvalid: the request is malformed, or names a take of other dispatchers.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthenticated: the dispatchers do not accept the token.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden: the user may not take keys of a kind, or the take is another user's.
	ErrForbidden = errors.New("forbidden")
	// ErrUnknownKind: the dispatchers do not serve the kind.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrEnded: the take or the stream has ended. Another worker may have the key.
	ErrEnded = errors.New("ended")
	// ErrTooMany: this client sends too many requests.
	ErrTooMany = errors.New("too many requests")
	// ErrUnavailable: the dispatchers cannot answer now.
	ErrUnavailable = errors.New("unavailable")
)

// sentinels maps types of problems, without wire.ProblemBase, to errors.
var sentinels = map[string]error{
	wire.ProblemInvalid: ErrInvalid, wire.ProblemUnauthenticated: ErrUnauthenticated,
	wire.ProblemForbidden: ErrForbidden, wire.ProblemUnknownKind: ErrUnknownKind, wire.ProblemEnded: ErrEnded,
	wire.ProblemTooMany: ErrTooMany, wire.ProblemUnavailable: ErrUnavailable,
}

// statuses maps HTTP statuses to errors, for answers of proxies and for unknown types of problems.
var statuses = map[int]error{
	http.StatusBadRequest: ErrInvalid, http.StatusUnauthorized: ErrUnauthenticated, http.StatusForbidden: ErrForbidden,
	http.StatusGone: ErrEnded, http.StatusTooManyRequests: ErrTooMany, http.StatusBadGateway: ErrUnavailable,
	http.StatusServiceUnavailable: ErrUnavailable, http.StatusGatewayTimeout: ErrUnavailable,
}

// Problem is an error answer.
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	wire.Problem
	// RetryAfter is how long to wait before the request is sent again, or 0 if the answer does not contain it.
	RetryAfter time.Duration
}

// Error returns the kind of problem and its detail.
func (p *Problem) Error() string {
	what := strings.TrimPrefix(p.Type, wire.ProblemBase)
	if what == "" {
		what = http.StatusText(p.Status)
	}
	if p.Detail == "" {
		return fmt.Sprintf("%d %s", p.Status, what)
	}
	return fmt.Sprintf("%d %s: %s", p.Status, what, p.Detail)
}

// Is reports whether the problem is one of the errors above.
func (p *Problem) Is(target error) bool {
	if err, known := sentinels[strings.TrimPrefix(p.Type, wire.ProblemBase)]; known {
		return err == target
	}
	return statuses[p.Status] == target && target != nil
}

// temporary reports whether the same request may succeed later.
func (p *Problem) temporary() bool {
	return p.Status >= 500 || p.Status == http.StatusTooManyRequests || p.Status == http.StatusRequestTimeout
}

// maxProblem is how many bytes of an error answer are read.
const maxProblem = 64 << 10

// problemOf reads an error answer.
func problemOf(resp *http.Response) *Problem {
	p := &Problem{RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != wire.TypeProblem || json.Unmarshal(body, &p.Problem) != nil {
		p.Problem = wire.Problem{}
	}
	p.Status = resp.StatusCode
	return p
}

// maxRetryAfter bounds the delay that an answer may ask for.
const maxRetryAfter = 10 * time.Minute

// retryAfter parses the header Retry-After: seconds, or a date. It returns 0 for anything else.
func retryAfter(header string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second // it has 32 bits
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
