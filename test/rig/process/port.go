package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports of FreePort lie below those that kernels give to connections, and to listeners that do not care, which may come
// between its choice and the start of the process that is to listen there. That another test chooses the same port of
// 10,000 is left to chance.
const (
	firstPort = 20_000
	lastPort  = 29_999
	portTries = 100
)

// given are the ports that FreePort has returned.
var given sync.Map

// FreePort returns a port on loopback at which nobody listens now, for a process that takes one and is started next. It
// returns no port twice.
func FreePort(ctx context.Context) (port int, err error) {
	err = errors.New("all were given before")
	for range portTries {
		port = firstPort + rand.IntN(lastPort-firstPort+1)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("none of %d ports between %d and %d is free: %w", portTries, firstPort, lastPort, err)
}

// FreeAddress is FreePort, as an address.
func FreeAddress(ctx context.Context) (string, error) {
	port, err := FreePort(ctx)
	return loopback(port), err
}

// loopback returns the address of a port on loopback.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
