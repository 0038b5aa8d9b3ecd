package feed

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
	// Readers is how many kinds a member asks for their versions at a time.
	Readers = 4
	// readTimeout bounds such a read, so that one without an answer does not hold up the others for long.
	readTimeout = 2 * time.Second
)

// reads are the reads of a kind's present version. All callers that come before a read is sent share its answer.
type reads struct {
	mu sync.Mutex
	// next is the read that was not sent yet. running is true while a read is in flight.
	next    *read
	running bool
}

type read struct {
	done    chan struct{}
	version string
	err     error
}

// Present returns the kind's present version: the version of a consistent list that begins after the call.
func (l *lister) Present(ctx context.Context) (string, error) {
	q := &l.reads
	q.mu.Lock()
	if q.next == nil {
		q.next = &read{done: make(chan struct{})}
	}
	r := q.next
	if !q.running {
		q.running = true
		go l.readAll()
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
func (l *lister) readAll() {
	share := l.inf.share
	for {
		share.reading <- struct{}{}
		l.reads.mu.Lock()
		r := l.reads.next
		l.reads.next = nil
		if l.reads.running = r != nil; r == nil {
			l.reads.mu.Unlock()
			<-share.reading
			return
		}
		l.reads.mu.Unlock()
		r.version, r.err = l.readShared()
		<-share.reading
		close(r.done)
	}
}

func (l *lister) readShared() (string, error) {
	ctx, cancel := l.whileRunning(readTimeout)
	defer cancel()
	return l.readVersion(ctx)
}

// whileRunning returns a context that ends with the informer, or after a time.
func (l *lister) whileRunning(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		select {
		case <-l.inf.Source.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// readVersion is present without sharing: it does not wait for others.
func (l *lister) readVersion(ctx context.Context) (string, error) {
	list, err := l.upstream.list(ctx, sharding.Request{ListOptions: metav1.ListOptions{Limit: 1}})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list of %s: %w", l.inf.Kind, err)
	}
	return about.GetResourceVersion(), nil
}
