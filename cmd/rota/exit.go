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

// exitCode is the exit status of the command. Scripts rely on the numbers: none is ever given another meaning.
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

// exitCodes says what the codes mean.
var exitCodes = []struct {
	code    exitCode
	meaning string
}{
	{exitGood, "all is well, or what was asked for is done"},
	{exitFindings, "something was found, as by `check` and `verify`; or an error that has no code of its own"},
	{exitUsage, "bad flags or arguments; nothing was done"},
	{exitUnreachable, "the cluster cannot be reached, or the kubeconfig or its credentials are no good"},
	{exitMissing, "there is no such rota, member, kind or object"},
	{exitForbidden, "a permission is missing"},
	{exitConflict, "somebody else changed it at the same time, or it took too long: try again"},
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

// codedError is an error whose exit code its maker knows.
type codedError struct {
	code exitCode
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode gives an error an exit code. nil stays nil.
func withCode(code exitCode, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// usagef is the error of a bad flag or argument.
func usagef(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// missingf is the error of something that does not exist.
func missingf(format string, args ...any) error {
	return withCode(exitMissing, fmt.Errorf(format, args...))
}

// codeOf classifies an error. The most exact knowledge counts: what the maker of the error said, what the API server
// answered, why there was no answer.
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

// unreachable reports whether there was no connection to a server at all, or none that can be trusted.
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
		// A server that does not answer: net/http gives up on the handshake, or the client's timeout ends. A deadline of a
		// context is that of the command.
		return !errors.Is(err, context.DeadlineExceeded) || clientTimeout(err)
	}
	return false
}

// clientTimeout reports whether the timeout of the client ended a request, and not the deadline of its context.
// Both are context.DeadlineExceeded; net/http says in the text which it was.
func clientTimeout(err error) bool { return strings.Contains(err.Error(), "Client.Timeout") }

// oneLine returns an error's text as one line for standard error. Manifests to apply keep their lines.
func oneLine(err error) string {
	var missing *permission.MissingError
	var denied *permission.Error
	if errors.As(err, &missing) || errors.As(err, &denied) {
		return err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
