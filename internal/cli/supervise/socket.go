package supervise

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// maxAnswer is the longest line of an answer, in bytes.
const maxAnswer = 1 << 20

// socket is a Unix socket in a directory that only this user can read.
type socket struct {
	net.Listener
	dir string
}

func newSocket(ctx context.Context) (*socket, error) {
	dir, err := os.MkdirTemp("", "rota-run-")
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "share"))
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &socket{l, dir}, nil
}

// close removes the socket.
func (s *socket) close() error { return errors.Join(s.Close(), os.RemoveAll(s.dir)) }

// serve takes connections for a sharer until the socket is closed.
func (s *socket) serve(of *sharer) {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		number, err := of.connect()
		if err != nil {
			of.Log.Error(err, "Refusing a connection")
			_, _ = conn.Write(encode(map[string]string{"type": "refused", "reason": err.Error()}))
			_ = conn.Close()
			continue
		}
		go of.converse(number, conn)
	}
}

// converse exchanges messages with a process until it closes its connection, or its socket is closed.
func (s *sharer) converse(number int, conn net.Conn) {
	heard := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			out, ok := s.take(number)
			if _, err := conn.Write(out); err != nil || !ok {
				s.flush() // it may be for the next process
				return
			}
			select {
			case <-s.sent:
			case <-heard:
				return
			}
		}
	})
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxAnswer)
	var err error
	for err == nil && lines.Scan() {
		err = s.heard(number, lines.Bytes())
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		err = lines.Err()
	}
	s.disconnect(number, err)
	close(heard)
	_ = conn.Close()
	writing.Wait()
}
