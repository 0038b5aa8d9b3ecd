package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	const help = "the socket of {{.Share}} is in TMPDIR (default /tmp), which must be writable and shorter than 80 bytes: "
	dir, err := os.MkdirTemp("", "rota-run-")
	if err != nil {
		return nil, fmt.Errorf(help+"%w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "share"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf(help+"%w", err), os.Remove(dir))
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
		go of.exchange(number, conn)
	}
}

// exchange exchanges messages with a process until it closes its connection, or its socket is closed.
func (s *sharer) exchange(number int, conn net.Conn) {
	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			out, ok := s.pending(number)
			if _, err := conn.Write(out); err != nil || !ok {
				s.flush() // it may be for the next process
				return
			}
			select {
			case <-s.outgoing:
			case <-ended:
				return
			}
		}
	})
	lines := bufio.NewReaderSize(conn, maxAnswer)
	var err error
	for err == nil {
		line, end := lines.ReadSlice('\n')
		if end != nil && !errors.Is(end, bufio.ErrBufferFull) {
			break // the process has ended, possibly in the middle of a line
		}
		if err = s.receive(number, line); errors.Is(end, bufio.ErrBufferFull) {
			err = fmt.Errorf("an answer is longer than %d bytes", maxAnswer)
		}
	}
	s.disconnect(number, err)
	close(ended)
	_ = conn.Close()
	writing.Wait()
}
