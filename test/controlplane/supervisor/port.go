package supervisor

import (
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a free loopback port that belongs to this supervisor as long as it lives: it is bound with SO_REUSEPORT but
// nobody listens on that socket, so that the server, which sets SO_REUSEPORT too, can bind the same port while the
// kernel gives it to no one else. Nobody can take it between choosing and starting, nor while the server is stopped on
// purpose.
type port struct {
	fd     int
	number int
}

func reservePort() (port, error) {
	// ForkLock: a child started between Socket and CloseOnExec would inherit it.
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return port{}, fmt.Errorf("reserve a port: socket: %w", err)
	}
	p := port{fd: fd}
	if err := p.bind(); err != nil {
		_ = unix.Close(fd)
		return port{}, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	// Port 0: the kernel never picks a port that is in use, shared or not.
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	addr, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.number = addr.(*unix.SockaddrInet4).Port
	return nil
}

func (p port) String() string { return strconv.Itoa(p.number) }

func (p port) url(scheme string) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", p.String())
}
