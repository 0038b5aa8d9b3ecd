package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// headerFor is the header with the user, in requests from one dispatcher to another.
const headerFor = "Rota-Dispatch-For"

// patience is how long a client may take to read an answer.
const patience = 10 * time.Second

// passedOn is by which factor the body of a forwarded request may be larger than the worker's: it is the same, but one
// byte of text may be written as six (\u003c).
const passedOn = 6

// soon is when to retry what cannot be done now.
const soon = time.Second

// codeGone is the code for an answer whose client has gone, as in nginx's logs.
const codeGone = 499

// errGone: the client has gone.
var errGone = errors.New("the client has gone")

// request is a request in progress.
type request struct {
	http    *http.Request
	w       http.ResponseWriter
	started time.Time
	access  access.User
	// user is the user that the request is for. It differs from access if another dispatcher sent the request.
	user      string
	forwarded bool
	code      int // of the answer
	// slow is set if the body did not come in time. The server then ends the connection.
	slow bool
}

var titles = map[string]struct {
	code  int
	title string
}{
	wire.ProblemInvalid:         {http.StatusBadRequest, "The request is invalid"},
	wire.ProblemUnauthenticated: {http.StatusUnauthorized, "There is no valid token"},
	wire.ProblemForbidden:       {http.StatusForbidden, "The user is not allowed to do that"},
	wire.ProblemUnknownKind:     {http.StatusNotFound, "The dispatchers do not have that kind"},
	wire.ProblemNotFound:        {http.StatusNotFound, "There is no such path"},
	wire.ProblemMethod:          {http.StatusMethodNotAllowed, "The path takes another method"},
	wire.ProblemEnded:           {http.StatusGone, "The take or the stream has ended"},
	wire.ProblemTimeout:         {http.StatusRequestTimeout, "The body did not come in time"},
	wire.ProblemTooLarge:        {http.StatusRequestEntityTooLarge, "The body is too large"},
	wire.ProblemMediaType:       {http.StatusUnsupportedMediaType, "The body is not JSON"},
	wire.ProblemTooMany:         {http.StatusTooManyRequests, "There are too many requests"},
	wire.ProblemUnavailable:     {http.StatusServiceUnavailable, "The dispatcher cannot answer now"},
}

func problem(kind, format string, args ...any) error {
	e := &access.Error{Problem: kind, Detail: fmt.Sprintf(format, args...)}
	if kind == wire.ProblemUnavailable {
		e.RetryAfter = soon
	}
	return e
}

// fail answers with an error, if there is one, and returns its type.
func (r *request) fail(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, errGone) {
		r.code = codeGone
		return ""
	}
	refused := accessError(err)
	message := messageOf(refused)
	h := r.w.Header()
	if refused.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(max(1, (refused.RetryAfter+time.Second-1)/time.Second))))
	}
	if message.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	_ = r.answer(message.Status, wire.TypeProblem, message)
	return refused.Problem
}

// accessError converts an error to the one that clients get.
func accessError(err error) *access.Error {
	var refused *access.Error
	if !errors.As(err, &refused) {
		refused = &access.Error{Problem: wire.ProblemUnavailable, Detail: err.Error(), RetryAfter: soon}
	}
	return refused
}

// messageOf returns the body of an error answer.
func messageOf(refused *access.Error) wire.Problem {
	known, ok := titles[refused.Problem]
	if !ok {
		known.code, known.title = http.StatusInternalServerError, refused.Problem
	}
	return wire.Problem{
		Type: wire.ProblemBase + refused.Problem, Title: known.title, Status: known.code, Detail: refused.Detail,
	}
}

// answer sends an answer. It returns an error if the client did not get it. In doubt the client got it: takes that a
// client reads just before it closes its connection must not be given to another one.
func (r *request) answer(code int, contentType string, body any) error {
	r.code = code
	if r.http.Context().Err() != nil && !r.slow {
		return errGone
	}
	control := http.NewResponseController(r.w)
	_ = control.SetWriteDeadline(time.Now().Add(patience)) // of the connection, where supported
	if body == nil {
		r.w.WriteHeader(code)
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	h := r.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	r.w.WriteHeader(code)
	if _, err = r.w.Write(append(text, '\n')); err == nil {
		err = control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) || r.http.ProtoMajor > 1 {
		return nil // HTTP/2 also reports streams that the client closed after it had everything
	}
	return err // a part of the body is missing
}

// read decodes the body. If it does not read all of the body, the connection ends with the answer, since reading the
// rest would have no time limit.
func (r *request) read(into any) error {
	if t, _, err := mime.ParseMediaType(r.http.Header.Get("Content-Type")); err != nil || t != wire.TypeJSON {
		return problem(wire.ProblemMediaType, "Content-Type is %q: send %s", r.http.Header.Get("Content-Type"), wire.TypeJSON)
	}
	control := http.NewResponseController(r.w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	limit := int64(wire.MaxBody)
	if r.forwarded {
		limit *= passedOn
	}
	err := decode(http.MaxBytesReader(r.w, r.http.Body, limit), into)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
		return nil
	}
	r.w.Header().Set("Connection", "close")
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.slow = true
		return problem(wire.ProblemTimeout, "the body took longer than %v; nothing was done", patience)
	case errors.As(err, &large):
		return problem(wire.ProblemTooLarge, "the body has more than %d bytes", limit)
	case errors.Is(err, io.EOF):
		return problem(wire.ProblemInvalid, "the body is empty: send a JSON object")
	}
	return problem(wire.ProblemInvalid, "the body: %v", err)
}

// decode decodes a single value. Anything after it is an error.
func decode(body io.Reader, into any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	switch _, err := d.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("there is more than one value")
}

// seconds converts a number of seconds.
func seconds(field string, s, most float64) (time.Duration, error) {
	if s < 0 || s > most {
		return 0, problem(wire.ProblemInvalid, "%s: %v: must be from 0 to %v", field, s, most)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// longest bounds times for which the protocol has no limit: a year.
const longest = 366 * 24 * 3600

// workerName checks the name of a worker.
func workerName(name string) error {
	if name == "" {
		return problem(wire.ProblemInvalid, "worker: is missing: name who asks, as with the name of its Pod")
	}
	if len(name) > wire.MaxWorker || !utf8.ValidString(name) {
		return problem(wire.ProblemInvalid, "worker: has %d bytes: must be text of at most %d", len(name), wire.MaxWorker)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return problem(wire.ProblemInvalid, "worker: %q: must be printable characters", name)
		}
	}
	return nil
}

// refused converts the queue's errors to problems.
func refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrTake):
		return problem(wire.ProblemEnded, "the take has ended: it was done or released, it expired, or its slot went to "+
			"another dispatcher")
	case errors.Is(err, queue.ErrKind):
		return problem(wire.ProblemUnknownKind, "%v", err)
	}
	return problem(wire.ProblemInvalid, "%v", err)
}
