// Package haproxy finds HAProxy on this machine, and talks to a running one.
package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"
)

// ErrMissing is returned on a machine without HAProxy.
var ErrMissing = errors.New("there is no haproxy: install it, for example with apt-get install haproxy")

// Find returns HAProxy's path. It also looks in folders of distributions that are outside users' paths.
func Find() (string, error) {
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

const (
	dialLimit = time.Second
	askLimit  = 2 * time.Second
)

// Ask sends a command to a socket of HAProxy, and returns the answer. It takes at most 2 s.
func Ask(ctx context.Context, socket, command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("HAProxy does not answer: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() //nolint:errcheck // everything was read
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return nil, fmt.Errorf("HAProxy does not take `%s`: %w", command, err)
	}
	_ = conn.(*net.UnixConn).CloseWrite()
	text, err := io.ReadAll(conn)
	if err != nil {
		return nil, fmt.Errorf("HAProxy does not answer to `%s`: %w", command, err)
	}
	return text, nil
}
