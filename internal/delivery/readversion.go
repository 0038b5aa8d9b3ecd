package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

const (
	// readers is how many kinds a member asks for their versions at a time.
	readers = 4
	// readTimeout bounds such a read, so that one without an answer does not hold up the others for long.
	readTimeout = 2 * time.Second
)

// reads are the reads of a kind's present version. All callers that come before a read is sent share its answer.
type reads struct {
	mu sync.Mutex
	// next is the read that was not sent yet. running says that one is in flight.
	next    *read
	running bool
}

type read struct {
	done    chan struct{}
	version string
	err     error
}

// present returns the kind's present version: that of a consistent list that begins after the call.
func (s *source) present(ctx context.Context) (string, error) {
	q := &s.reads
	q.mu.Lock()
	if q.next == nil {
		q.next = &read{done: make(chan struct{})}
	}
	r := q.next
	if !q.running {
		q.running = true
		go s.readAll()
	}
	q.mu.Unlock()
	select {
	case <-r.done:
		return r.version, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// readAll sends the reads one after the other until there are no more.
func (s *source) readAll() {
	share := s.inf.share
	for {
		share.reading <- struct{}{}
		s.reads.mu.Lock()
		r := s.reads.next
		s.reads.next = nil
		if s.reads.running = r != nil; r == nil {
			s.reads.mu.Unlock()
			<-share.reading
			return
		}
		s.reads.mu.Unlock()
		r.version, r.err = s.readShared()
		<-share.reading
		close(r.done)
	}
}

func (s *source) readShared() (string, error) {
	ctx, cancel := s.whileRunning(readTimeout)
	defer cancel()
	return s.readVersion(ctx)
}

// whileRunning returns a context that ends with the informer, or after a time.
func (s *source) whileRunning(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// readVersion is present without sharing: it does not wait for others.
func (s *source) readVersion(ctx context.Context) (string, error) {
	list, err := s.upstream.list(ctx, sharding.Request{ListOptions: metav1.ListOptions{Limit: 1}})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
	}
	return about.GetResourceVersion(), nil
}
