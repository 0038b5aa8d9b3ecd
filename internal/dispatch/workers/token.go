package workers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// token names a take or a stream of one process. It is opaque to clients: the text ends with a code that only the
// process can compute, for one user.
type token struct {
	process Process
	// what is tokenTake or tokenStream.
	what byte
	id   uint64
	// worker is the take's worker.
	worker string
}

const (
	tokenVersion = 1
	tokenTake    = 't'
	tokenStream  = 's'
	codeSize     = 16
)

var tokenText = base64.RawURLEncoding.Strict()

var errToken = errors.New("not a token")

// seal returns the text of a token of this process.
func (f *Front) seal(t token, user string) string {
	b := []byte{tokenVersion, t.what}
	b = append(b, f.o.Process[:]...)
	b = binary.AppendUvarint(b, t.id)
	b = append(b, t.worker...)
	return tokenText.EncodeToString(append(b, f.code(b, user)...))
}

// code is the message authentication code of a token (RFC 2104).
func (f *Front) code(b []byte, user string) []byte {
	h := hmac.New(sha256.New, f.secret[:])
	h.Write(binary.AppendUvarint(nil, uint64(len(b))))
	h.Write(b)
	h.Write([]byte(user))
	return h.Sum(nil)[:codeSize]
}

// parse parses a token. genuine is true if this process made it for the user.
func (f *Front) parse(text, user string) (t token, genuine bool, err error) {
	b, err := tokenText.DecodeString(text)
	if err != nil || len(b) < 2+len(t.process)+1+codeSize || b[0] != tokenVersion {
		return t, false, errToken
	}
	body, code := b[:len(b)-codeSize], b[len(b)-codeSize:]
	t.what = body[1]
	copy(t.process[:], body[2:])
	rest := body[2+len(t.process):]
	id, n := binary.Uvarint(rest)
	if n <= 0 {
		return t, false, errToken
	}
	t.id, t.worker = id, string(rest[n:])
	return t, hmac.Equal(code, f.code(body, user)), nil
}

// own parses a token of a request. It returns false if another process made it.
func (f *Front) own(r *request, what byte, text string) (t token, own bool, err error) {
	field := "token"
	if what == tokenStream {
		field = "stream"
	}
	if text == "" {
		return t, false, problem(wire.ProblemInvalid, "%s: is missing", field)
	}
	t, genuine, err := f.parse(text, r.user)
	switch {
	case err != nil || t.what != what:
		return t, false, problem(wire.ProblemInvalid, "%s: it is not one that a dispatcher has made for that", field)
	case t.process != f.o.Process:
		return t, false, nil
	case !genuine:
		return t, false, problem(wire.ProblemForbidden, "%s: this dispatcher has not made it for %s", field, r.user)
	}
	return t, true, nil
}
