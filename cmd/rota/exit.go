package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rota-dev/rota/permission"
)

// exitCode is the exit status of the command. Scripts rely on the numbers, so their meanings never change.
type exitCode int

// Exit codes. docs/cli.md lists them from exitCodes.
const (
	exitGood        exitCode = 0
	exitFindings    exitCode = 1
	exitUsage       exitCode = 2
	exitUnreachable exitCode = 3
	exitMissing     exitCode = 4
	exitForbidden   exitCode = 5
	exitConflict    exitCode = 6
	exitInterrupted exitCode = 130
)

// exitCodes describes the codes.
var exitCodes = []struct {
	code    exitCode
	meaning string
}{
	{exitGood, "all is well, or the request is done"},
	{exitFindings, "a problem was found, for example by `check` or `verify`; or any other error"},
	{exitUsage, "bad flags or arguments; nothing was done"},
	{exitUnreachable, "the cluster cannot be reached, or the kubeconfig or its credentials are invalid"},
	{exitMissing, "there is no such rota, member, kind or object"},
	{exitForbidden, "a permission is missing"},
	{exitConflict, "something else changed it at the same time, or it took too long: try again"},
	{exitInterrupted, "interrupted"},
}

// exitCodesText lists the codes, one per line.
func exitCodesText() string {
	lines := make([]string, 0, len(exitCodes))
	for _, e := range exitCodes {
		lines = append(lines, fmt.Sprintf("  %3d  %s", e.code, e.meaning))
	}
	return strings.Join(lines, "\n")
}

// codedError is an error with an explicit exit code.
type codedError struct {
	code exitCode
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode adds an exit code to an error. It returns nil for nil.
func withCode(code exitCode, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// usagef returns an error about a bad flag or argument.
func usagef(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// missingf returns an error about something that does not exist.
func missingf(format string, args ...any) error {
	return withCode(exitMissing, fmt.Errorf(format, args...))
}

// codeOf classifies an error. An explicit code comes first, then the API server's answer, then the reason for no
// answer.
func codeOf(err error) exitCode {
	var coded *codedError
	var denied *permission.Error
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &denied), apierrors.IsForbidden(err):
		return exitForbidden
	case apierrors.IsUnauthorized(err), apierrors.IsServiceUnavailable(err):
		return exitUnreachable
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return exitMissing
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err):
		return exitConflict
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case unreachable(err):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitConflict
	default:
		return exitFindings
	}
}

// unreachable reports whether there was no connection to a server, or no trusted one.
func unreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var request *url.Error
	switch {
	case errors.As(err, &op):
		return op.Op == "dial" || op.Op == "remote error" || op.Timeout() || utilnet.IsConnectionReset(err)
	case errors.As(err, &dns), errors.As(err, &record), errors.As(err, &cert), errors.As(err, &authority):
		return true
	case errors.As(err, &request):
		// A server that does not answer: the TLS handshake or the client timed out. A context's deadline is the command's.
		return !errors.Is(err, context.DeadlineExceeded) || clientTimeout(err)
	}
	return false
}

// clientTimeout reports whether the client's timeout ended a request rather than its context's deadline. Both are
// context.DeadlineExceeded; only net/http's text differs.
func clientTimeout(err error) bool { return strings.Contains(err.Error(), "Client.Timeout") }

// oneLine returns an error's text as one line. Manifests to apply keep their lines.
func oneLine(err error) string {
	var missing *permission.MissingError
	var denied *permission.Error
	if errors.As(err, &missing) || errors.As(err, &denied) {
		return err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
