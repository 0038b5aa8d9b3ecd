package workers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// anyone lets everybody in.
type anyone struct{}

func (anyone) Authenticate(*http.Request) (access.User, error) { return access.User{Name: "w"}, nil }
func (anyone) Admit(access.User) (release func(), err error)   { return func() {}, nil }
func (anyone) Authorize(context.Context, access.User, schema.GroupKind, []string) error {
	return nil
}

// pipes is a listener whose connections are in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A body that does not come in time gets a problem, is not carried out, and the connection ends; so it does where a body
// is refused before all of it was read.
func TestSlowBody(t *testing.T) {
	for name, c := range map[string]struct{ head, first, trickle, status, problem string }{
		"slow":                   {"Content-Length: 1000", `{"token":"`, "a", "408 Request Timeout", wire.ProblemTimeout},
		"stops":                  {"Content-Length: 1000", `{"token":"`, "", "408 Request Timeout", wire.ProblemTimeout},
		"invalid, and then slow": {"Content-Length: 1000", `{"token":}`, "a", "400 Bad Request", wire.ProblemInvalid},
		"value, and then slow":   {"Content-Length: 1000", `{"token":"a"}`, " ", "408 Request Timeout", wire.ProblemTimeout},
		"slow chunks":            {"Transfer-Encoding: chunked", "1\r\n{\r\n", "1\r\n \r\n", "408 Request Timeout", wire.ProblemTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &Front{o: Options{Guard: anyone{}, Observe: func(string, int, string) {}}}
				server := &http.Server{
					IdleTimeout: time.Hour, ReadHeaderTimeout: time.Minute,
					Handler: f.handle("x", http.MethodPost, func(r *request) error {
						if err := r.read(&wire.DoneRequest{}); err != nil {
							return err
						}
						t.Error("the request was carried out")
						return nil
					}),
				}
				listener := make(pipes)
				go func() { _ = server.Serve(listener) }()
				defer server.Close()
				defer close(listener)
				var client sync.WaitGroup
				defer client.Wait()
				mine, theirs := net.Pipe()
				defer mine.Close()
				listener <- theirs
				client.Go(func() {
					_, err := io.WriteString(mine, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"+c.head+
						"\r\n\r\n"+c.first)
					for err == nil && c.trickle != "" {
						time.Sleep(time.Second)
						_, err = io.WriteString(mine, c.trickle)
					}
				})
				begun := time.Now()
				in := bufio.NewReader(mine)
				answer, err := http.ReadResponse(in, nil)
				require.NoError(t, err)
				defer func() { _ = answer.Body.Close() }()
				text, _ := io.ReadAll(answer.Body)
				if answer.Status != c.status || !strings.Contains(string(text), wire.ProblemBase+c.problem) || !answer.Close {
					t.Errorf("the answer is %s, %s; closes: %v", answer.Status, text, answer.Close)
				}
				if _, err := in.ReadByte(); !errors.Is(err, io.EOF) || time.Since(begun) > patience+time.Second {
					t.Errorf("the connection ended with %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// A client that is thought to be gone gets no answer, rather than one that looks like success.
func TestNoEmptyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Front{o: Options{Guard: anyone{}, Observe: func(string, int, string) {}}}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: f.handle("x", http.MethodPost,
			func(*request) error { return errGone })}
		listener := make(pipes)
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		defer close(listener)
		mine, theirs := net.Pipe()
		defer mine.Close()
		listener <- theirs
		_, err := io.WriteString(mine, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		require.NoError(t, err)
		if text, err := io.ReadAll(mine); err != nil || len(text) > 0 {
			t.Errorf("got %q, %v", text, err)
		}
	})
}
