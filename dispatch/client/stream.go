package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// maxLine is the longest line of a stream, in bytes.
const maxLine = 1 << 20

// maxSilence is how long a stream may be silent before its dispatcher counts as gone.
const maxSilence = wire.HeartbeatSeconds * time.Second

// Stream is a connection that delivers keys, as many as it has credit for. Its methods may be called concurrently.
type Stream struct {
	client *Client
	name   string
	sent   time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // of the connection, which outlives calls
	takes  chan *Take
	ended  chan struct{}
	err    error // valid once ended is closed
}

// Stream opens a stream. ctx applies only to the opening, which is not retried. Close ends the stream.
func (c *Client) Stream(ctx context.Context, req StreamRequest) (*Stream, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	opening := time.AfterFunc(requestTimeout, func() { cancel(errors.New("the stream was not opened in time")) })
	defer opening.Stop()
	resp, sent, err := c.send(life, wire.PathStream, req)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%s: %w", wire.PathStream, err)
	}
	s := &Stream{
		client: c, sent: sent, cancel: cancel, ctx: life, takes: make(chan *Take), ended: make(chan struct{}),
	}
	lines := bufio.NewReader(resp.Body)
	first, err := readEvent(lines)
	if err == nil && first.Stream == "" {
		err = errors.New("it does not begin with its name")
	}
	if err != nil {
		_ = resp.Body.Close()
		err = fmt.Errorf("%s: %w", wire.PathStream, errors.Join(err, context.Cause(life)))
		cancel(nil)
		return nil, err
	}
	s.name = first.Stream
	go s.follow(resp.Body, lines)
	return s, nil
}

// readEvent reads a line.
func readEvent(lines *bufio.Reader) (wire.StreamEvent, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return wire.StreamEvent{}, fmt.Errorf("a line is longer than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return wire.StreamEvent{}, err
		}
		break
	}
	var e wire.StreamEvent
	if len(bytes.TrimSpace(line)) == 0 {
		return e, nil
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return wire.StreamEvent{}, fmt.Errorf("read a line: %w", err)
	}
	return e, nil
}

func (s *Stream) follow(body io.Closer, lines *bufio.Reader) {
	defer close(s.ended)
	defer func() { _ = body.Close() }()
	silent := time.AfterFunc(maxSilence, func() { s.cancel(fmt.Errorf("silent for %v", maxSilence)) })
	defer silent.Stop()
	err := s.read(lines, silent)
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	s.err = fmt.Errorf("stream: %w", err)
	s.cancel(s.err)
}

func (s *Stream) read(lines *bufio.Reader, silent *time.Timer) error {
	for {
		e, err := readEvent(lines)
		if err != nil {
			return err
		}
		silent.Reset(maxSilence)
		switch {
		case e.End != "":
			return fmt.Errorf("%w: %s", ErrEnded, e.End)
		case e.Take == nil:
			continue
		}
		t, err := s.client.newTake(s.sent, e.Take)
		if err != nil {
			return err
		}
		silent.Stop() // nothing is read while the caller is busy
		select {
		case s.takes <- t:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
		silent.Reset(maxSilence)
	}
}

// Next waits for a key. It returns an error if the stream or ctx has ended.
func (s *Stream) Next(ctx context.Context) (*Take, error) {
	select {
	case t := <-s.takes:
		return t, nil
	case <-s.ended:
		return nil, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Credit allows the stream to deliver n more keys. If the answer is lost, it may deliver up to twice as many.
func (s *Stream) Credit(ctx context.Context, n int) error {
	_, err := s.client.call(ctx, wire.PathCredit, requestTimeout, wire.CreditRequest{Stream: s.name, Credit: n}, nil)
	return err
}

// Close ends the stream. Takes that it has delivered continue.
func (s *Stream) Close() {
	s.cancel(errors.New("closed"))
	<-s.ended
}
