package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/require"
)

// stalled is as the error of a TLS handshake to which nobody answers.
type stalled struct{}

func (stalled) Error() string   { return "net/http: TLS handshake timeout" }
func (stalled) Timeout() bool   { return true }
func (stalled) Temporary() bool { return true }

func TestCodeOf(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	_, refused := net.Dial("tcp", "127.0.0.1:1")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1", nil)
	require.NoError(t, err)
	_, unanswered := http.DefaultClient.Do(request) //nolint:bodyclose // there is no answer
	for name, c := range map[string]struct {
		err  error
		want exitCode
	}{
		"none":       {nil, exitGood},
		"of no kind": {errors.New("x"), exitFindings},
		"usage":      {usagef("x"), exitUsage},
		"refused":    {refused, exitUnreachable},
		"no answer":  {unanswered, exitUnreachable},
		"no TLS":     {&url.Error{Op: "Get", URL: "https://x", Err: stalled{}}, exitUnreachable},
		"no answer in the client's time": {&url.Error{Op: "Get", URL: "https://x", Err: fmt.Errorf("%w (Client.Timeout exceeded "+
			"while awaiting headers)", context.DeadlineExceeded)}, exitUnreachable},
		"the command's time is over": {&url.Error{Op: "Get", URL: "https://x", Err: context.DeadlineExceeded}, exitConflict},
		"unknown host":               {&net.DNSError{Name: "x"}, exitUnreachable},
		"bad credentials":            {apierrors.NewUnauthorized("x"), exitUnreachable},
		"no such rota":               {missingf("x"), exitMissing},
		"no such object":             {apierrors.NewNotFound(leases, "x"), exitMissing},
		"no such kind":               {&meta.NoResourceMatchError{PartialResource: leases.WithVersion("")}, exitMissing},
		"forbidden":                  {apierrors.NewForbidden(leases, "x", errors.New("no")), exitForbidden},
		"missing rule":               {&permission.Error{Verb: "get", Resource: "leases"}, exitForbidden},
		"conflict":                   {apierrors.NewConflict(leases, "x", errors.New("changed")), exitConflict},
		"too long":                   {context.DeadlineExceeded, exitConflict},
		"interrupted":                {context.Canceled, exitInterrupted},
		"said by its maker":          {withCode(exitUsage, context.Canceled), exitUsage},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
		if wrapped := fmt.Errorf("rota a/b: %w", c.err); c.err != nil && codeOf(wrapped) != c.want {
			t.Errorf("%s, wrapped: exit code %d, want %d", name, codeOf(wrapped), c.want)
		}
	}
}

// runCommand runs a command line, the program's name first.
func runCommand(ctx context.Context, args ...string) (code exitCode, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// After a signal the true error stays, unless it is that of the signal.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, errOut := runCommand(ctx, "rota", "check", "--pre", "--kind", "pods"); code != exitUsage || !strings.Contains(errOut, "is no kind") {
		t.Errorf("exit code %d: %s; want the error of the kind", code, errOut)
	}
	args := []string{"rota", "status", "a", "--server", "http://127.0.0.1:1"}
	if code, _, errOut := runCommand(ctx, args...); code != exitInterrupted || errOut != "rota: interrupted\n" {
		t.Errorf("exit code %d: %s; want that it was interrupted", code, errOut)
	}
}

// A look that only reads is over when the API server does not answer, and says so. The end of the command is another.
func TestNoAnswerInTime(t *testing.T) {
	get := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("get configmaps operators/website: %w", ctx.Err())
	}
	synctest.Test(t, func(t *testing.T) {
		err := within(t.Context(), get)
		if codeOf(err) != exitUnreachable || !strings.Contains(oneLine(err), "the API server does not answer: get configmaps") {
			t.Errorf("code %d: %v", codeOf(err), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := within(ctx, get); codeOf(err) != exitInterrupted {
			t.Errorf("interrupted: code %d: %v", codeOf(err), err)
		}
	})
}
